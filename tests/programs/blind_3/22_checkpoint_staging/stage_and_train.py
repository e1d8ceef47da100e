import argparse
import logging
import multiprocessing as mp
import os
import shutil
import time

import numpy as np

from staging import stager_main

log = logging.getLogger("train")


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--shard-kb", type=int, default=1024)
    ap.add_argument("--period", type=float, default=0.2)
    ap.add_argument("--max-time", type=float, default=90)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    queue = mp.Queue(2)
    stager = mp.Process(target=stager_main, args=(queue, args.shard_kb, args.period), name="stager", daemon=True)
    stager.start()
    start, n, mean, root = time.time(), 0, 0.0, None
    while time.time() - start < args.max_time:
        path = queue.get()
        root = os.path.dirname(path)
        data = np.load(path)
        mean += (data.mean() - mean) / (n + 1)
        n += 1
        if n % 20 == 0:
            log.info("shard %d mean %.5f", n, mean)
    stager.terminate()
    stager.join()
    if root:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
