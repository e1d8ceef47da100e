"""Scores a collection of documents with a pool of processes; results go into one SQLite table."""
import argparse
import logging
import multiprocessing as mp
import os
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from corpus import load_lengths
from scoring import score_batch
from store import ResultStore

log = logging.getLogger("score")
_store = None


def init_worker(path):
    global _store
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    _store = ResultStore(path)


def process_batch(batch):
    start = time.perf_counter()
    with _store.session() as session:
        for doc_id, tokens in batch:
            if session.get(doc_id) is None:
                session.put(doc_id, score_batch(doc_id, tokens))
    return len(batch), time.perf_counter() - start


def batches(lengths, size):
    docs = list(enumerate(lengths))
    for first in range(0, len(docs), size):
        yield docs[first:first + size]


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--docs", type=int, default=40000)
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--processes", type=int, default=4)
    p.add_argument("--db", type=Path, default=None)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")

    lengths = load_lengths(args.docs)
    log.info("%d documents, %.0f tokens on average", len(lengths), sum(lengths) / len(lengths))
    with tempfile.TemporaryDirectory(prefix="scores_") as tmp:
        path = args.db or Path(tmp) / "results.sqlite"
        ResultStore(path).create()
        ctx = mp.get_context("fork")
        with ctx.Pool(args.processes, init_worker, (path,)) as pool:
            start, done, since = time.perf_counter(), 0, 0
            for n, took in pool.imap_unordered(process_batch, batches(lengths, args.batch)):
                done += n
                since += 1
                if since == 10:
                    since = 0
                    rate = done / (time.perf_counter() - start)
                    log.info("%d/%d documents, %.1f/s, last batch %.2f s", done, args.docs, rate, took)


if __name__ == "__main__":
    main()
