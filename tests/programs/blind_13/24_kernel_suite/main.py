"""Run the operator accuracy suite over several worker processes and collect one summary."""
import argparse
import json
import logging
import multiprocessing as mp
import queue
import tempfile
import time
from pathlib import Path

from ops import OPS
from suite_worker import worker_loop

log = logging.getLogger("suite")


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--workers", type=int, default=3)
    p.add_argument("--rounds", type=int, default=6)
    p.add_argument("--repeat", type=int, default=20)
    p.add_argument("--size", type=int, default=200_000)
    p.add_argument("--results", default=None)
    return p.parse_args()


def display_loop(messages, n_workers, total):
    exited = done = failed = 0
    started = time.time()
    while exited < n_workers:
        try:
            kind, worker, payload = messages.get(timeout=1)
        except queue.Empty:
            continue
        if kind == "result":
            done += 1
            failed += not payload["passed"]
            if done % 5 == 0 or done == total:
                log.info("[%d/%d] %d failed, %.0f s", done, total, failed, time.time() - started)
        elif kind == "exit":
            exited += 1
            log.info("worker %d finished", worker)
    return done, failed


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    results = Path(args.results or tempfile.mkdtemp(prefix="suite_"))
    ctx = mp.get_context("fork")
    tasks, messages = ctx.Queue(), ctx.Queue()
    cases = [(name, seed) for seed in range(args.rounds) for name in OPS]
    for case in cases:
        tasks.put(case)
    for _ in range(args.workers):
        tasks.put(None)
    workers = [ctx.Process(target=worker_loop, args=(i, args, tasks, messages, results), name=f"suite-worker-{i}")
               for i in range(args.workers)]
    for w in workers:
        w.start()
    log.info("%d cases, %d workers, results in %s", len(cases), args.workers, results)
    done, failed = display_loop(messages, args.workers, len(cases))
    for w in workers:
        w.join()
    merged = [r for i in range(args.workers) for r in json.loads((results / f"summary{i}.json").read_text())]
    (results / "summary.json").write_text(json.dumps(merged, indent=1))
    log.info("%d cases done, %d failed", done, failed)


if __name__ == "__main__":
    main()
