"""Clip classifier fed by a process pool."""
import argparse
import logging
import multiprocessing as mp
import time

import numpy as np
import torch
from torch import nn

from optim import MomentumSgd
from enqueuer import OrderedEnqueuer
from sequences import ClipSequence, get_item

log = logging.getLogger("clips")


def main(args):
    torch.set_num_threads(1)
    sequence = ClipSequence(args.videos, args.windows, args.seed)
    log.info("%d clips", len(sequence))
    model = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 1))
    opt = MomentumSgd(model.parameters(), lr=1e-3)
    with mp.get_context("fork").Pool(args.workers) as pool:
        feed = OrderedEnqueuer(sequence, pool, get_item, 12, args.seed)
        feed.start()
        wait = compute = 0.0
        for step in range(1, args.steps + 1):
            t0 = time.monotonic()
            items = feed.batch(args.batch_size)
            t1 = time.monotonic()
            x = torch.from_numpy(np.stack([i[0] for i in items]))
            y = torch.tensor([i[1] for i in items])
            loss = nn.functional.binary_cross_entropy_with_logits(model(x).squeeze(1), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            wait, compute = wait + t1 - t0, compute + time.monotonic() - t1
            log.info("step %d loss %.4f data %.2fs compute %.2fs (mean)", step, loss.item(), wait / step, compute / step)


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--videos", type=int, default=800)
    ap.add_argument("--windows", type=int, default=40)
    ap.add_argument("--workers", type=int, default=3)
    ap.add_argument("--batch-size", type=int, default=8)
    ap.add_argument("--steps", type=int, default=100000)
    ap.add_argument("--seed", type=int, default=2)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    main(ap.parse_args())
