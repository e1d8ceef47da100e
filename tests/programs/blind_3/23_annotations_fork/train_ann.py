import argparse
import logging
import time

import torch
from torch import nn
from torch.utils.data import DataLoader

from annotations import CocoLike

torch.set_num_threads(1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--images", type=int, default=250000)
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--batch-size", type=int, default=32)
    ap.add_argument("--max-time", type=float, default=80)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    log = logging.getLogger("ann")
    loader = DataLoader(CocoLike(args.images), batch_size=args.batch_size, shuffle=True,
                        num_workers=args.workers)
    net = nn.Linear(16, 90)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    start = time.time()
    for step, (x, y) in enumerate(loader):
        loss = nn.functional.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        time.sleep(0.04)
        if step % 100 == 0:
            log.info("step %d loss %.3f", step, loss.item())
        if time.time() - start > args.max_time:
            break


if __name__ == "__main__":
    main()
