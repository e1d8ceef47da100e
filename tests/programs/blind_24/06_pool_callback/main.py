"""Builds a search index over audio clips with a pool of analysers."""
import argparse
import json
import logging
import multiprocessing as mp
import os
import random
import signal
import sys
import tempfile
import time

from analysis import analyse

log = logging.getLogger("indexer")


class ClipIndex:
    """Keeps one row per clip and buckets clips by pitch."""

    def __init__(self, path):
        self.path = path
        self.rows = {}
        self.buckets = {}
        self.started = time.time()

    def add(self, result):
        self.rows[result["id"]] = result
        bucket = int(result["centroid"] // 100)
        self.buckets.setdefault(bucket, []).append(result["id"])
        if len(self.rows) % 10 == 0:
            rate = len(self.rows) / (time.time() - self.started)
            log.info("%d clips indexed (%.1f/s), %d buckets", len(self.rows), rate, len(self.buckets))

    def failed(self, err):
        log.warning("clip could not be analysed: %r", err)

    def flush(self):
        with open(self.path, "w") as f:
            json.dump({"rows": self.rows, "buckets": self.buckets}, f)
        log.info("index with %d rows written", len(self.rows))


def catalogue(count, seed):
    rng = random.Random(seed)
    clips = []
    for i in range(count):
        seconds = rng.choice([2.0, 3.5, 5.0, 8.0])
        if i % 47 == 46:
            seconds = 0.05                      # button sounds
        clips.append({"id": f"clip{i:05d}", "seed": rng.randrange(1 << 30), "seconds": seconds,
                      "fetch": rng.uniform(0.15, 0.35)})
    return clips


def worker_init():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    os.environ["OMP_NUM_THREADS"] = "1"


class Indexer:
    def __init__(self, args, index):
        self.args, self.index = args, index

    def run_shard(self, pool, clips):
        pending = [pool.apply_async(analyse, (c,), callback=self.index.add,
                                    error_callback=self.index.failed) for c in clips]
        for p in pending:
            p.wait()
        return sum(p.successful() for p in pending)

    def run(self):
        clips = catalogue(self.args.clips, self.args.seed)
        size = self.args.shard
        with mp.Pool(self.args.workers, initializer=worker_init) as pool:
            for at in range(0, len(clips), size):
                ok = self.run_shard(pool, clips[at:at + size])
                log.info("shard %d: %d of %d clips fine", at // size, ok, len(clips[at:at + size]))
                self.index.flush()


def slot_over(signum, frame):
    log.info("nightly slot is over")
    sys.exit(0)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--clips", type=int, default=1200)
    ap.add_argument("--workers", type=int, default=3)
    ap.add_argument("--shard", type=int, default=72)
    ap.add_argument("--seed", type=int, default=5)
    ap.add_argument("--budget", type=int, default=135, help="seconds the nightly slot lasts")
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    signal.signal(signal.SIGALRM, slot_over)
    signal.alarm(args.budget)
    with tempfile.TemporaryDirectory(prefix="clipindex_") as tmp:
        Indexer(args, ClipIndex(os.path.join(tmp, "index.json"))).run()


if __name__ == "__main__":
    main()
