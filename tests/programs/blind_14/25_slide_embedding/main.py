"""Feature extraction for whole-slide images on several ranks."""
import argparse
import logging
import multiprocessing as mp
import queue
import tempfile
from collections import Counter

from embed import embed_slides
from tiles import SLIDES


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--world-size", type=int, default=2)
    p.add_argument("--tile-size", type=int, default=64)
    p.add_argument("--dim", type=int, default=384)
    p.add_argument("--rounds", type=int, default=20, help="number of augmented passes")
    p.add_argument("--read-latency", type=float, default=0.008)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s main %(message)s")
    with tempfile.TemporaryDirectory(prefix="slide_features_") as work_dir:
        barrier, done = mp.Barrier(args.world_size), mp.Queue()
        ranks = [mp.Process(target=embed_slides, name=f"embed-{r}", daemon=True,
                            args=(r, args.world_size, args, work_dir, barrier, done))
                 for r in range(args.world_size)]
        for p in ranks:
            p.start()
        parts, complete = Counter(), 0
        while complete < args.rounds * len(SLIDES):
            try:
                rank, name = done.get(timeout=10)
            except queue.Empty:
                logging.info("%d slides complete, waiting for the ranks", complete)
                continue
            parts[name] += 1
            if parts[name] % args.world_size == 0:
                complete += 1
                logging.info("%s complete (%d slides)", name, complete)
        for p in ranks:
            p.join()


if __name__ == "__main__":
    main()
