import argparse
import logging
import multiprocessing as mp
import time

import numpy as np

from replay import ReplayBuffer

log = logging.getLogger("dqn")


def collect(queue, side, rate):
    rng = np.random.default_rng(0)
    while True:
        for _ in range(10):
            frame = rng.integers(0, 255, (4, side, side), dtype=np.uint8)
            queue.put((frame, int(rng.integers(0, 4)), float(rng.normal())))
        time.sleep(10 / rate)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--capacity", type=int, default=2000)
    ap.add_argument("--warmup", type=int, default=500)
    ap.add_argument("--side", type=int, default=128)
    ap.add_argument("--rate", type=float, default=400)
    ap.add_argument("--max-time", type=float, default=90)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    queue = mp.Queue(32)
    actor = mp.Process(target=collect, args=(queue, args.side, args.rate), name="collector", daemon=True)
    actor.start()
    buf, q = ReplayBuffer(args.capacity), np.zeros((4, 64), dtype=np.float32)
    start, n = time.time(), 0
    while time.time() - start < args.max_time:
        buf.add(queue.get())
        n += 1
        if n > args.warmup and n % 20 == 0:
            for frame, a, r in buf.sample(16):
                feat = frame[:, ::16, ::16].mean(0).ravel() / 255
                q[a] += 1e-3 * (r - q[a] @ feat) * feat
        if n % 500 == 0:
            log.info("transitions %d buffer %d/%d", n, len(buf), args.capacity)
    actor.terminate()


if __name__ == "__main__":
    main()
