"""Synthetic views for an autoencoder; renderer processes serve a few views each."""
import argparse
import itertools
import logging
import multiprocessing as mp
import time

import torch
from torch import nn

from render import render_view

log = logging.getLogger("views")


def main(args):
    torch.set_num_threads(1)
    ctx = mp.get_context("fork")
    model = nn.Conv2d(3, 3, 3, padding=1)
    n, t0, pids = 0, time.monotonic(), set()
    with ctx.Pool(args.workers, maxtasksperchild=args.views_per_process) as pool:
        for block in itertools.count():
            tasks = [(block * args.block + i, 64, args.samples) for i in range(args.block)]
            for seed, image in pool.imap_unordered(render_view, tasks):
                x = torch.from_numpy(image).permute(2, 0, 1)[None]
                loss = (model(x) - x).square().mean()
                loss.backward()
                with torch.no_grad():
                    for p in model.parameters():
                        p -= 0.01 * p.grad
                        p.grad = None
                n += 1
            pids |= {p.pid for p in mp.active_children()}
            log.info("block %d: %d views, %.1f views/s, loss %.4f, %d renderer processes so far", block, n,
                     n / (time.monotonic() - t0), loss.item(), len(pids))


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--workers", type=int, default=3)
    ap.add_argument("--views-per-process", type=int, default=8)
    ap.add_argument("--block", type=int, default=24)
    ap.add_argument("--samples", type=int, default=60)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    main(ap.parse_args())
