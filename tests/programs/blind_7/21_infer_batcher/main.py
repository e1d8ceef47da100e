"""Runs the batching server with two clients that call it now and then."""
import argparse
import logging
import multiprocessing as mp
import time

import numpy as np

from server import model_process, scheduler

log = logging.getLogger("serve")


def client(idx, requests, replies, mean_gap, seconds):
    """Users come in small groups with long gaps in between."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    rng = np.random.default_rng(idx)
    t_end, key = time.monotonic() + seconds, 0
    while time.monotonic() < t_end:
        time.sleep(min(rng.exponential(mean_gap), 3 * mean_gap))
        n = int(rng.integers(1, 12))
        t0 = time.time()
        for _ in range(n):
            requests.put((idx, key, rng.standard_normal(128).astype(np.float32)))
            key += 1
        for _ in range(n):
            replies.get()
        logging.info("%d answers in %.0f ms", n, 1000 * (time.time() - t0))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--clients", type=int, default=2)
    p.add_argument("--models", type=int, default=2)
    p.add_argument("--mean-gap", type=float, default=9.0)
    p.add_argument("--max-batch", type=int, default=8)
    p.add_argument("--max-wait", type=float, default=0.05)
    p.add_argument("--seconds", type=float, default=105)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")

    ctx = mp.get_context("fork")
    requests, batches = ctx.Queue(), ctx.Queue()
    replies = [ctx.Queue() for _ in range(args.clients)]
    procs = [ctx.Process(target=scheduler, args=(requests, batches, args.max_batch, args.max_wait), name="scheduler")]
    procs += [ctx.Process(target=model_process, args=(i, batches, replies), name=f"model-{i}")
              for i in range(args.models)]
    users = [ctx.Process(target=client, args=(i, requests, replies[i], args.mean_gap, args.seconds), name=f"client-{i}")
             for i in range(args.clients)]
    for proc in procs + users:
        proc.start()
    for proc in users:
        proc.join()
    requests.put(None)
    for proc in procs:
        proc.join()
    log.info("served")


if __name__ == "__main__":
    main()
