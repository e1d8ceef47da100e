"""Histogram filling over staged event files, one worker per partition."""
import argparse
import logging
import multiprocessing as mp
import os
import queue
import tempfile
import time

import numpy as np
import torch

from staging import Stager, StageInTimeout

log = logging.getLogger("events")


def process(path, chunks, chunk_time):
    raw = np.fromfile(path, dtype=np.uint8)
    hist = torch.zeros(50)
    for k in range(chunks):
        x = torch.from_numpy(np.roll(raw, k)[:4096].astype(np.float32))
        hist += torch.histc(x, 50, 0, 255)
        time.sleep(chunk_time)
    return hist


def run_worker(index, files, scratch, args, out):
    torch.set_num_threads(1)
    stager = Stager(scratch, args.limit)
    while True:
        for name, chunks in files:
            try:
                path = stager.fetch(name)
            except StageInTimeout:
                log.warning("worker %d: staging %s timed out", index, name)
                continue
            out.put((index, name, process(path, chunks, args.chunk_time)))
            if not name.startswith("calib"):
                os.remove(path)


def main(args):
    ctx = mp.get_context("fork")
    with tempfile.TemporaryDirectory(prefix="scratch_") as scratch:
        out = ctx.Queue()
        workers = []
        for i in range(args.workers):
            files = [(f"run{i}_{k}.evt", 30) for k in range(4)]
            if i == 1:
                files.insert(1, ("calib_2024.evt", 200))
                Stager(scratch, args.limit)._download("calib_2024.evt", os.path.join(scratch, "calib_2024.evt"))
            workers.append(ctx.Process(target=run_worker, args=(i, files, scratch, args, out),
                                       name=f"events-{i}", daemon=True))
            workers[-1].start()
        total, n, last = torch.zeros(50), 0, time.monotonic()
        while True:
            try:
                index, name, hist = out.get(timeout=1.0)
                total += hist
                n += 1
            except queue.Empty:
                pass
            if time.monotonic() - last > 3:
                log.info("%d files merged, %.2e entries", n, total.sum().item())
                last = time.monotonic()


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--workers", type=int, default=3)
    ap.add_argument("--limit", type=int, default=5)
    ap.add_argument("--chunk-time", type=float, default=0.05)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    main(ap.parse_args())
