"""A small training service: requests go through an SQLite store to an engine and samplers."""
import argparse
import logging
import multiprocessing as mp
import os
import tempfile
import time

from engine import engine_main
from sampler import sampler_main
from store import RequestStore

log = logging.getLogger("api")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samplers", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=200)
    parser.add_argument("--rate", type=float, default=25, help="sampling requests per second")
    parser.add_argument("--checkpoint-mb", type=int, default=72)
    parser.add_argument("--train-seconds", type=float, default=1.5,
                        help="optimiser time between two checkpoints")
    parser.add_argument("--workdir", default=None)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s: %(message)s")

    workdir = args.workdir or tempfile.mkdtemp(prefix="tinker_")
    db = os.path.join(workdir, "requests.db")
    RequestStore(db).create()

    ctx = mp.get_context("fork")
    procs = [ctx.Process(target=engine_main, name="engine", daemon=True,
                         args=(db, workdir, args.checkpoint_mb, args.train_seconds))]
    procs += [ctx.Process(target=sampler_main, name=f"sampler-{i}", args=(db, i), daemon=True)
              for i in range(args.samplers)]
    for p in procs:
        p.start()

    store = RequestStore(db)
    start = last = time.time()
    sent = done_before = 0
    while time.time() - start < args.seconds:
        due = min(int((time.time() - start) * args.rate) - sent, 10)
        if due > 0:
            store.add([{"prompt": f"prompt {sent + i}", "max_tokens": 16} for i in range(due)])
            sent += due
        if time.time() - last >= 5:
            pending, done = store.counts()
            log.info("sampling %.1f requests/s, %d pending", (done - done_before) / (time.time() - last), pending)
            last, done_before = time.time(), done
        time.sleep(0.1)


if __name__ == "__main__":
    main()
