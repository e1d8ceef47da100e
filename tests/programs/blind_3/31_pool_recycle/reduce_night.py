import argparse
import logging
import multiprocessing as mp
import os
import time

import numpy as np

log = logging.getLogger("reduce")


class Recipe:
    def __init__(self, side=512):
        self.side = side

    def __call__(self, frame_id):
        rng = np.random.default_rng(frame_id)
        scratch = [rng.random((self.side, self.side)) for _ in range(12)]
        time.sleep(0.25)
        stack = np.median(np.stack([s[::4, ::4] for s in scratch]), axis=0)
        return frame_id, os.getpid(), float(stack.std())


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--procs", type=int, default=3)
    ap.add_argument("--frames", type=int, default=100000)
    ap.add_argument("--max-time", type=float, default=85)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    start, pids, n = time.time(), set(), 0

    def frames():
        i = 0
        while i < args.frames and time.time() - start < args.max_time:
            while i > n + 4 * args.procs:
                time.sleep(0.02)
            yield i
            i += 1

    with mp.Pool(args.procs, maxtasksperchild=3) as pool:
        for frame_id, pid, std in pool.imap_unordered(Recipe(), frames()):
            n += 1
            pids.add(pid)
            if n % 20 == 0:
                log.info("%d frames, last %d std %.4f, %d worker processes so far", n, frame_id, std, len(pids))


if __name__ == "__main__":
    main()
