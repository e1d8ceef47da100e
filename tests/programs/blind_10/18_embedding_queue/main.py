"""Embeds a collection of images with a few worker processes, then builds the neighbour table."""
import argparse
import ctypes
import logging
import multiprocessing as mp

import numpy as np
import torch

from extractor import extractor_main

log = logging.getLogger("embed")


class EmbeddingTable:
    """Rows in shared memory, written by the workers."""

    def __init__(self, rows, dim):
        self._raw = mp.RawArray(ctypes.c_float, rows * dim)
        self.shape = (rows, dim)

    def array(self):
        return np.frombuffer(self._raw, dtype=np.float32).reshape(self.shape)

    def __setitem__(self, row, value):
        self.array()[row] = value


def neighbours(table, k):
    vectors = torch.from_numpy(table.array().copy())
    return torch.cdist(vectors, vectors).topk(k + 1, largest=False).indices[:, 1:]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=140)
    parser.add_argument("--dim", type=int, default=32)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--k", type=int, default=5)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    torch.set_num_threads(1)
    tasks = mp.JoinableQueue()
    table = EmbeddingTable(args.images, args.dim)
    workers = [mp.Process(target=extractor_main, args=(tasks, table), name=f"extractor-{i}", daemon=True)
               for i in range(args.workers)]
    for worker in workers:
        worker.start()
    for item in range(args.images):
        tasks.put(item)
    log.info("%d images queued", args.images)
    tasks.join()
    log.info("neighbour table %s", tuple(neighbours(table, args.k).shape))


if __name__ == "__main__":
    main()
