"""Retrieval index refresh: chunks are embedded by consumers, then the index is updated."""
import argparse
import logging
import multiprocessing as mp
import time

import numpy as np
import torch

from consumer import run_consumer

log = logging.getLogger("index")


class Index:
    def __init__(self, dim, size):
        self.vectors = torch.zeros(size, dim)
        self.cursor = 0

    def add(self, block):
        for row in torch.from_numpy(block):
            self.vectors[self.cursor % len(self.vectors)] = row
            self.cursor += 1

    def self_similarity(self):
        n = min(self.cursor, len(self.vectors))
        return (self.vectors[:n] @ self.vectors[:n].T).mean().item()


def main(args):
    torch.set_num_threads(1)
    ctx = mp.get_context("fork")
    tasks, results = ctx.Queue(), ctx.Queue()
    for i in range(args.consumers):
        ctx.Process(target=run_consumer, args=(i, tasks, results), name=f"consumer-{i}", daemon=True).start()
    rng = np.random.default_rng(0)
    index = Index(64, 1024)
    for refresh in range(1, args.refreshes + 1):
        t0 = time.monotonic()
        for job in range(args.chunks):
            tasks.put((job, rng.integers(0, 2000, (32, 20))))
        for _ in range(args.chunks):
            _, block = results.get()
            index.add(block)
        log.info("refresh %d: %d vectors, self-similarity %.4f, %.2fs", refresh, index.cursor,
                 index.self_similarity(), time.monotonic() - t0)
        time.sleep(args.pause)


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--consumers", type=int, default=3)
    ap.add_argument("--chunks", type=int, default=12)
    ap.add_argument("--refreshes", type=int, default=100000)
    ap.add_argument("--pause", type=float, default=0.2)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    main(ap.parse_args())
