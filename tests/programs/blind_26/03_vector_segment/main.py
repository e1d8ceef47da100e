"""Local vector collection: searches while new documents are added."""
import argparse
import logging
import shutil
import signal
import sys
import tempfile
import time

import torch
import torch.multiprocessing as mp

from read_write_lock import ReadWriteLock
from segment import VectorSegment
from services import indexer, ingester, searcher


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--searchers", type=int, default=3)
    p.add_argument("--threads", type=int, default=2, help="per searcher")
    p.add_argument("--dim", type=int, default=64)
    p.add_argument("--capacity", type=int, default=20000)
    p.add_argument("--initial", type=int, default=4000)
    p.add_argument("--lists", type=int, default=64)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--k", type=int, default=8)
    p.add_argument("--fetch-ms", type=float, default=4.0)
    p.add_argument("--ingest-interval", type=float, default=0.5)
    p.add_argument("--queue", type=int, default=16)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    ctx = mp.get_context("fork")
    folder = tempfile.mkdtemp(prefix="segment-")
    processes = []
    try:
        torch.set_num_threads(1)
        segment = VectorSegment(args.capacity, args.dim, args.lists, folder)
        segment.add(torch.randn(args.initial, args.dim))
        lock = ReadWriteLock(ctx)
        inbox = ctx.Queue(maxsize=args.queue)
        counter = ctx.Value("l", 0)
        processes.append(ctx.Process(target=indexer, args=(inbox, segment, lock, args), name="indexer", daemon=True))
        processes.append(ctx.Process(target=ingester, args=(inbox, args), name="ingester", daemon=True))
        for i in range(args.searchers):
            processes.append(ctx.Process(target=searcher, args=(i, segment, lock, counter, args), name=f"searcher-{i}",
                                         daemon=True))
        for p in processes:
            p.start()
        before = 0
        while all(p.is_alive() for p in processes):
            time.sleep(10)
            logging.info("%.0f searches per second", (counter.value - before) / 10)
            before = counter.value
    finally:
        for p in processes:
            p.terminate()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
