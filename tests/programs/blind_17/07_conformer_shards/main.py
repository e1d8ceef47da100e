"""Computes conformers for all molecules of a set of shards with a few worker processes."""
import argparse
import logging
import multiprocessing as mp
import os
import queue
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np

import shards


def worker(worker_id, tasks, results, out_dir):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(levelname)s %(message)s")
    log = logging.getLogger("worker")
    os.environ["OMP_NUM_THREADS"] = "1"
    while True:
        path = tasks.get()
        if path is None:
            results.put(("exit", worker_id, None, 0))
            return
        header = shards.open_shard(path, log)
        log.info("%s: version %d, %d molecules", Path(path).name, header["version"], header["count"])
        coordinates = []
        for i, atoms in enumerate(shards.molecules(path)):
            coordinates.append(shards.embed_conformer(atoms, seed=i))
            if (i + 1) % 20 == 0:
                results.put(("progress", worker_id, path, 20))
        np.savez(Path(out_dir) / (Path(path).stem + ".npz"), *coordinates)
        results.put(("done", worker_id, path, header["count"]))


class Collector:
    """Follows the workers' messages until every shard is done."""

    def __init__(self, paths, log):
        self.pending = set(paths)
        self.total = len(paths)
        self.molecules = Counter()
        self.log = log
        self.last_report = time.monotonic()

    def handle(self, message):
        kind, worker_id, path, count = message
        if kind == "progress":
            self.molecules[worker_id] += count
        elif kind == "done":
            self.pending.discard(path)
            self.log.info("%s done by worker %d, %d of %d shards left", Path(path).name, worker_id,
                          len(self.pending), self.total)

    def report(self):
        if time.monotonic() - self.last_report < 5:
            return
        self.last_report = time.monotonic()
        self.log.info("molecules by worker: %s", dict(sorted(self.molecules.items())))

    def run(self, results):
        while self.pending:
            try:
                self.handle(results.get(timeout=1))
            except queue.Empty:
                pass
            self.report()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--shards", type=int, default=9)
    parser.add_argument("--molecules", type=int, default=260)
    parser.add_argument("--walltime", type=int, default=130)
    parser.add_argument("--out", default=None)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(levelname)s %(message)s")
    log = logging.getLogger("main")
    work = tempfile.mkdtemp(prefix="conformers_")
    paths = shards.write_sample_shards(work, args.shards, args.molecules)

    ctx = mp.get_context("spawn")
    tasks, results = ctx.Queue(), ctx.Queue()
    workers = [ctx.Process(target=worker, args=(i, tasks, results, args.out or work), daemon=True,
                           name=f"conformer-{i}") for i in range(args.workers)]
    for path in paths:
        tasks.put(path)
    for _ in workers:
        tasks.put(None)
    for w in workers:
        w.start()

    def walltime():
        time.sleep(args.walltime)
        log.warning("walltime of %d s is over", args.walltime)
        for w in workers:
            w.kill()
        os._exit(0)

    threading.Thread(target=walltime, daemon=True).start()
    Collector(paths, log).run(results)
    for w in workers:
        w.join()
    log.info("all shards done")


if __name__ == "__main__":
    main()
