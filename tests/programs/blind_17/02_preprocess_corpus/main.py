"""Tokenises a directory of JSON-lines shards into one flat token file with an index."""
import argparse
import json
import logging
import multiprocessing
import os
import random
import tempfile
import threading
import time
from pathlib import Path

from encoder import Encoder
from indexed import IndexedDatasetBuilder

log = logging.getLogger("preprocess")

WORDS = ["model", "train", "layer", "the", "of", "token", "river", "stone", "quick", "report", "market", "and",
         "light", "gradient", "house", "winter", "paper", "system", "under", "between", "number", "people"]


def make_sample_corpus(directory, shards, docs_per_shard, seed=11):
    """A stand-in for the crawl: some pages have only markup or whitespace as their text."""
    rng = random.Random(seed)
    paths = []
    for shard in range(shards):
        path = Path(directory) / f"crawl-{shard:03d}.jsonl"
        with open(path, "w") as f:
            for _ in range(docs_per_shard):
                if rng.random() < 0.06:
                    text = rng.choice(["<br/><br/>", "   \n\n", "<p></p>", "&nbsp;&nbsp;"])
                else:
                    text = " ".join(rng.choice(WORDS) for _ in range(rng.randint(300, 900)))
                f.write(json.dumps({"text": text, "meta": {"shard": shard}}) + "\n")
        paths.append(path)
    return paths


def yield_documents(paths, semaphore):
    """Documents of all shards, no more of them under way than the semaphore allows."""
    for path in paths:
        with open(path) as f:
            for line in f:
                semaphore.acquire()
                yield line


class Progress:
    def __init__(self, interval):
        self.interval = interval
        self.started = time.monotonic()
        self.last = self.started
        self.docs = 0
        self.skipped = 0
        self.nbytes = 0

    def update(self, nbytes):
        self.docs += 1
        self.nbytes += nbytes
        now = time.monotonic()
        if now - self.last >= self.interval:
            self.last = now
            elapsed = now - self.started
            log.info("processed %d documents (%.1f docs/s, %.2f MB/s), skipped %d", self.docs,
                     self.docs / elapsed, self.nbytes / elapsed / 1e6, self.skipped)


def tokenize_corpus(paths, args):
    encoder = Encoder(append_eod=True, merges=args.merges)
    semaphore = multiprocessing.Semaphore(args.max_in_flight)
    builder = IndexedDatasetBuilder(Path(args.output) / "corpus")
    progress = Progress(args.log_interval)
    documents = yield_documents(paths, semaphore)
    with multiprocessing.Pool(args.workers, initializer=encoder.initializer) as pool:
        for ids, nbytes in pool.imap(encoder.encode, documents, args.chunk_size):
            if not ids:
                progress.skipped += 1
                continue
            builder.add_item(ids)
            builder.end_document()
            semaphore.release()
            progress.update(nbytes)
    builder.finalize()
    return progress


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--input", default=None, help="directory with .jsonl shards; a sample is made without it")
    parser.add_argument("--output", default=None)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--chunk-size", type=int, default=25)
    parser.add_argument("--max-in-flight", type=int, default=100)
    parser.add_argument("--merges", type=int, default=12)
    parser.add_argument("--log-interval", type=float, default=2.0)
    parser.add_argument("--time-limit", type=int, default=130)
    return parser.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    work = tempfile.mkdtemp(prefix="corpus_")
    args.output = args.output or work

    def time_limit():
        time.sleep(args.time_limit)
        log.warning("time limit of %d s reached", args.time_limit)
        for child in multiprocessing.active_children():
            child.kill()
        os._exit(0)

    threading.Thread(target=time_limit, name="time-limit", daemon=True).start()
    if args.input:
        paths = sorted(Path(args.input).glob("*.jsonl"))
    else:
        paths = make_sample_corpus(work, shards=8, docs_per_shard=1500)
    total = sum(p.stat().st_size for p in paths)
    log.info("%d shards, %.1f MB, %d workers", len(paths), total / 1e6, args.workers)
    progress = tokenize_corpus(paths, args)
    log.info("done: %d documents, %d skipped", progress.docs, progress.skipped)


if __name__ == "__main__":
    main()
