import argparse
import logging
import tempfile
import time

import torch
from torch import nn
from torch.utils.data import DataLoader

from kitti import KittiSweeps, write_sweeps

torch.set_num_threads(1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--sweeps", type=int, default=300)
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--batch-size", type=int, default=4)
    ap.add_argument("--max-time", type=float, default=75)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    log = logging.getLogger("det")
    with tempfile.TemporaryDirectory(prefix="kitti_", dir=".") as folder:
        write_sweeps(folder, args.sweeps)
        loader = DataLoader(KittiSweeps(folder, args.sweeps, 1000), batch_size=args.batch_size,
                            shuffle=True, num_workers=args.workers)
        net = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 1))
        opt = torch.optim.Adam(net.parameters(), lr=1e-3)
        start = time.time()
        for step, pts in enumerate(loader):
            loss = net(pts).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            time.sleep(0.05)
            if step % 50 == 0:
                log.info("step %d loss %.4f", step, loss.item())
            if time.time() - start > args.max_time:
                break


if __name__ == "__main__":
    main()
