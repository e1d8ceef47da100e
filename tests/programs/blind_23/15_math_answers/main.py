"""Generates the responses of a model to a visual math benchmark."""
import argparse
import json
import logging
import multiprocessing as mp
import os
import tempfile
import threading
import time

from problems import ProblemSet
from responder import Responder, serve
from results import ResultFile

log = logging.getLogger("generate")


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--problems", type=int, default=11000)
    p.add_argument("--earlier", type=int, default=5000, help="responses restored from the interrupted run")
    p.add_argument("--models", type=int, default=3)
    p.add_argument("--latency", type=float, default=0.06)
    p.add_argument("--output", default=None)
    p.add_argument("--limit", type=float, default=125.0, help="seconds of the queue slot")
    return p.parse_args()


def restore(problems, count, path):
    """Fetch what the interrupted run had finished (on the cluster: a copy from the bucket)."""
    responder = Responder(99, 0.0)
    earlier = {pid: responder.respond(problems.problem(pid)) for pid in problems.ids()[:count]}
    with open(path, "w") as f:
        json.dump(earlier, f)


def generate(args, problems, store):
    todo = store.missing(problems.ids())
    inbox, outbox = mp.Queue(), mp.Queue(maxsize=12)
    for pid in todo:
        inbox.put(pid)
    models = [mp.Process(target=serve, name=f"model-{n}", daemon=True,
                         args=(n, problems, inbox, outbox, args.latency, args.limit + 10))
              for n in range(args.models)]
    for process in models:
        inbox.put(None)
        process.start()
    log.info("%d problems to go, models %s", len(todo), [process.pid for process in models])
    began = reported = time.monotonic()
    for done in range(1, len(todo) + 1):
        store.add(outbox.get())
        now = time.monotonic()
        if now - reported > 5:
            reported = now
            rate = done / (now - began)
            log.info("%d/%d responses, %.1f/s, %.0f min left, accuracy %.3f", done, len(todo), rate,
                     (len(todo) - done) / rate / 60, store.accuracy())
        if now - began > args.limit - 8:
            log.info("queue slot nearly over, stopping at %d responses", done)
            break
    for process in models:
        process.terminate()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    timer = threading.Timer(args.limit + 10, os._exit, args=(0,))
    timer.daemon = True
    timer.start()
    output = args.output or os.path.join(tempfile.mkdtemp(prefix="answers-"), "output_model.json")
    problems = ProblemSet(args.problems)
    if not os.path.exists(output):
        restore(problems, args.earlier, output)
    generate(args, problems, ResultFile(output))


if __name__ == "__main__":
    main()
