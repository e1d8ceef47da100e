import argparse
import logging
import multiprocessing
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, as_completed

import numpy as np

from docpipe import embed

log = logging.getLogger("build_index")


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--docs", type=int, default=400)
    p.add_argument("--workers", type=int, default=3)
    p.add_argument("--journal", default=tempfile.gettempdir() + "/build_index.jsonl")
    return p.parse_args()


def plan_shards(n, rounds=200):
    """Shuffle until neighbouring ids are well apart, so that large books do not end up together."""
    rng = np.random.default_rng(0)
    best, best_gap = None, -1
    for _ in range(rounds):
        order = rng.permutation(n)
        gap = np.abs(np.diff(order)).min()
        if gap > best_gap:
            best, best_gap = order, gap
    time.sleep(0.15)  # let the first record reach the shared volume
    return best


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    journal = embed.open_journal(args.journal)
    journal.record(event="start", docs=args.docs)
    log.info("embedding %d documents with %d workers", args.docs, args.workers)
    order = plan_shards(args.docs)
    index = {}
    ctx = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(args.workers, mp_context=ctx) as pool:
        futures = [pool.submit(embed.embed_document, int(d)) for d in order]
        for fut in as_completed(futures):
            doc_id, vec = fut.result()
            index[doc_id] = vec
            if len(index) % 50 == 0:
                log.info("indexed %d/%d", len(index), args.docs)
                journal.record(event="progress", done=len(index))
    log.info("index has %d entries", len(index))


if __name__ == "__main__":
    main()
