import argparse
import logging
import time

import torch
from torch import nn

from collector import MultiSyncCollector

log = logging.getLogger("sync")


def frame_time(it):
    """Short episodes at first, full length afterwards."""
    return 0.35 if it < 20 else 1.1


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--workers", type=int, default=5)
    ap.add_argument("--iters", type=int, default=200)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    col = MultiSyncCollector(args.workers, frame_time)
    net = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 1))
    opt = torch.optim.Adam(net.parameters())
    for it in range(args.iters):
        t0 = time.time()
        x = torch.tensor(col.gather(it)).flatten(0, 1)
        t1 = time.time()
        loss = (net(x) - x.mean(-1, keepdim=True)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        log.info("iter %d frames %d collect %.2fs learn %.3fs", it, len(x), t1 - t0, time.time() - t1)
    col.shutdown()


if __name__ == "__main__":
    main()
