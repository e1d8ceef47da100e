"""Sentence-segment a crawl with a pool of workers and write one file per shard."""
import argparse
import collections
import json
import logging
import multiprocessing as mp
import os
import tempfile
import threading
import time

from corpus import read_corpus
from rules import clean, split_sentences

log = logging.getLogger("segment")


def segment(item):
    doc_id, text = item
    started = time.perf_counter()
    sentences = split_sentences(clean(text))
    return {"id": doc_id, "sentences": sentences, "ms": 1000 * (time.perf_counter() - started)}


class ShardWriter:
    def __init__(self, root, per_shard):
        self.root = root
        self.per_shard = per_shard
        self.rows = []
        self.shards = 0

    def add(self, row):
        self.rows.append({"id": row["id"], "sentences": row["sentences"]})
        if len(self.rows) >= self.per_shard:
            self.flush()

    def flush(self):
        if not self.rows:
            return
        path = os.path.join(self.root, f"shard-{self.shards:05d}.jsonl")
        with open(path, "w") as out:
            for row in self.rows:
                out.write(json.dumps(row) + "\n")
        self.shards += 1
        self.rows = []


def start_time_limit(seconds):
    def stop():
        time.sleep(seconds)
        log.error("job time limit of %.0f s reached", seconds)
        os._exit(0)
    threading.Thread(target=stop, name="time-limit", daemon=True).start()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--docs", type=int, default=1000)
    p.add_argument("--workers", type=int, default=3)
    p.add_argument("--per-shard", type=int, default=100)
    p.add_argument("--seed", type=int, default=11)
    p.add_argument("--time-limit", type=float, default=130)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")

    start_time_limit(args.time_limit)
    totals = collections.Counter()
    with tempfile.TemporaryDirectory(prefix="segments_") as root:
        writer = ShardWriter(root, args.per_shard)
        with mp.get_context("fork").Pool(args.workers) as pool:
            for row in pool.imap_unordered(segment, read_corpus(args.docs, args.seed), chunksize=4):
                writer.add(row)
                totals["docs"] += 1
                totals["sentences"] += len(row["sentences"])
                if totals["docs"] % 100 == 0:
                    log.info("%d/%d documents, %d sentences", totals["docs"], args.docs, totals["sentences"])
        writer.flush()
        log.info("finished: %s in %d shards", dict(totals), writer.shards)


if __name__ == "__main__":
    main()
