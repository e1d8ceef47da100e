"""Pseudo-labelling with a teacher whose use is limited to a quota per time window."""
import argparse
import logging
import multiprocessing as mp
import time

import torch
from torch import nn

from limiter import WindowQuota

log = logging.getLogger("labels")


def run_labeller(index, quota, out, batch):
    torch.set_num_threads(1)
    torch.manual_seed(index)
    teacher = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10)).eval()
    while True:
        quota.take()
        with torch.no_grad():
            x = torch.randn(batch, 256)
            for _ in range(10):
                p = teacher(x).softmax(1)
        out.put((index, p.max(1).values.mean().item()))


def main(args):
    ctx = mp.get_context("fork")
    quota = WindowQuota(ctx, args.quota, args.window)
    out = ctx.Queue()
    for i in range(args.workers):
        ctx.Process(target=run_labeller, args=(i, quota, out, args.batch), name=f"labeller-{i}", daemon=True).start()
    n, t0 = 0, time.monotonic()
    while True:
        index, confidence = out.get()
        n += 1
        if n % 20 == 0:
            log.info("%d batches labelled (last by %d, confidence %.3f), %.2f batches/s since start; quota %d per %.0f s",
                     n, index, confidence, n / (time.monotonic() - t0), args.quota, args.window)


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--workers", type=int, default=3)
    ap.add_argument("--quota", type=int, default=120)
    ap.add_argument("--window", type=float, default=20)
    ap.add_argument("--batch", type=int, default=256)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    main(ap.parse_args())
