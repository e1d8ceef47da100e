import argparse
import logging
import time

import torch
from torch import nn
from torch.utils.data import DataLoader

from objects import PoseDataset

torch.set_num_threads(1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--views", type=int, default=500000)
    ap.add_argument("--side", type=int, default=192)
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--batch-size", type=int, default=4)
    ap.add_argument("--max-time", type=float, default=75)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    log = logging.getLogger("pose")
    loader = DataLoader(PoseDataset(args.views, args.side), batch_size=args.batch_size, shuffle=True,
                        num_workers=args.workers, persistent_workers=True)
    net = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 49, 30))
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    start = time.time()
    for step, (crop, obj) in enumerate(loader):
        loss = nn.functional.cross_entropy(net(crop), obj)
        opt.zero_grad()
        loss.backward()
        opt.step()
        time.sleep(0.12)
        if step % 40 == 0:
            log.info("step %d loss %.3f", step, loss.item())
        if time.time() - start > args.max_time:
            break


if __name__ == "__main__":
    main()
