"""Embed scanned pages for search."""
import argparse
import logging
import multiprocessing as mp
import os
import signal
import tempfile
import time

import numpy as np
import torch

from embedder import Embedder
from pages import Scanner

log = logging.getLogger("pages")


def reader(rank, args, blobs):
    signal.alarm(args.walltime)
    scanner = Scanner(args.seed + rank)
    number = 0
    while True:
        begun = time.monotonic()
        blobs.put((f"volume{rank}/page{number:05d}", scanner.fetch()))
        number += 1
        time.sleep(max(0.0, 1.0 / args.rate - (time.monotonic() - begun)))


def embed_worker(args, shape, blobs, vectors):
    signal.alarm(args.walltime)
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    embedder = Embedder(shape)
    while True:
        item = blobs.get()
        if item is None:
            embedder.report()
            return
        vector = embedder.process(*item)
        if vector is not None:
            vectors.put((item[0], vector.numpy()))


class Store:
    """Appends vectors to a flat file, the ids go to a list beside it."""

    def __init__(self, folder):
        self.data = open(os.path.join(folder, "vectors.f32"), "ab")
        self.ids = open(os.path.join(folder, "ids.txt"), "a")
        self.count = 0

    def add(self, page_id, vector):
        self.data.write(np.ascontiguousarray(vector, dtype=np.float32).tobytes())
        self.ids.write(page_id + "\n")
        self.count += 1

    def close(self):
        self.data.close()
        self.ids.close()


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--readers", type=int, default=2)
    p.add_argument("--rate", type=float, default=3.5, help="pages per second and reader")
    p.add_argument("--duration", type=float, default=118)
    p.add_argument("--walltime", type=int, default=140)
    p.add_argument("--seed", type=int, default=21)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    signal.alarm(args.walltime)
    torch.set_num_threads(1)
    ctx = mp.get_context("fork")
    shape = Scanner(args.seed).shape
    blobs, vectors = ctx.Queue(maxsize=8), ctx.Queue(maxsize=64)
    readers = [ctx.Process(target=reader, args=(r, args, blobs), name=f"reader-{r}", daemon=True)
               for r in range(args.readers)]
    worker = ctx.Process(target=embed_worker, args=(args, shape, blobs, vectors), name="embed", daemon=True)
    for proc in (*readers, worker):
        proc.start()
    with tempfile.TemporaryDirectory(prefix="pages-") as folder:
        store = Store(folder)
        end = time.monotonic() + args.duration
        while time.monotonic() < end:
            store.add(*vectors.get(timeout=30))
            if store.count % 50 == 0:
                log.info("%d pages stored", store.count)
        for proc in readers:
            proc.terminate()
            proc.join()
        blobs.put(None)
        worker.join(10)
        store.close()


if __name__ == "__main__":
    main()
