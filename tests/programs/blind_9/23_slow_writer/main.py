"""Feature export: two fast extractors, one writer that is throttled to spare the shared file system."""
import argparse
import logging
import multiprocessing as mp
import os
import tempfile
import time

import numpy as np
import torch
from torch import nn

from writer import ThrottledWriter

log = logging.getLogger("export")


def run_extractor(index, args, out):
    torch.set_num_threads(1)
    torch.manual_seed(index)
    net = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 512)).eval()
    n, blocked, t0 = 0, 0.0, time.monotonic()
    while True:
        with torch.no_grad():
            block = net(torch.randn(args.batch, 256)).numpy()
        t1 = time.monotonic()
        out.put((index, n, block))
        blocked += time.monotonic() - t1
        n += 1
        if n % 10 == 0:
            log.info("extractor %d: %d blocks, %.0f%% of the time waiting for the writer", index, n,
                     100 * blocked / (time.monotonic() - t0))


def main(args):
    ctx = mp.get_context("fork")
    out = ctx.Queue(maxsize=args.pending)
    for i in range(args.extractors):
        ctx.Process(target=run_extractor, args=(i, args, out), name=f"extractor-{i}", daemon=True).start()
    with tempfile.TemporaryDirectory(prefix="features_") as d:
        writer = ThrottledWriter(os.path.join(d, "features.bin"), args.mb_per_second)
        n = 0
        while True:
            index, k, block = out.get()
            writer.write(np.ascontiguousarray(block))
            n += 1
            if n % 10 == 0:
                log.info("%d blocks written, %.1f MB/s (limit %.1f)", n, writer.rate(), args.mb_per_second)


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--extractors", type=int, default=2)
    ap.add_argument("--batch", type=int, default=512)
    ap.add_argument("--pending", type=int, default=4)
    ap.add_argument("--mb-per-second", type=float, default=2.0)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    main(ap.parse_args())
