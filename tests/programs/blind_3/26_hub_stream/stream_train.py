import argparse
import logging
import multiprocessing as mp
import time

import numpy as np

from hub import HubClient

log = logging.getLogger("train")


def reader(rank, world, queue):
    client, shard = HubClient(rank), rank
    while True:
        queue.put((shard, client.fetch(shard)))
        shard += world


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--readers", type=int, default=2)
    ap.add_argument("--step-time", type=float, default=0.5)
    ap.add_argument("--max-time", type=float, default=85)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    queue = mp.Queue(8)
    readers = [mp.Process(target=reader, args=(r, args.readers, queue), name=f"reader-{r}", daemon=True)
               for r in range(args.readers)]
    for r in readers:
        r.start()
    w, start, n = np.zeros(16, dtype=np.float32), time.time(), 0
    while time.time() - start < args.max_time:
        shard, x = queue.get()
        t0 = time.time()
        while time.time() - t0 < args.step_time:
            w -= 0.01 * (x.T @ (x @ w - x[:, 0])) / len(x)
            time.sleep(0.02)
        n += 1
        if n % 10 == 0:
            log.info("step %d shard %d err %.4f", n, shard, float(((x @ w - x[:, 0]) ** 2).mean()))
    for r in readers:
        r.terminate()


if __name__ == "__main__":
    main()
