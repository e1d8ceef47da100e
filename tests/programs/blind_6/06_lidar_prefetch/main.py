"""Fit a small occupancy model on interleaved lidar channels."""
import argparse
import logging
import multiprocessing as mp
import time

import torch
from torch import nn

from channels import merged, stream_channel
from prefetch import Prefetch

log = logging.getLogger("lidar")


class PointNetLite(nn.Module):
    def __init__(self):
        super().__init__()
        self.point = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 64))
        self.head = nn.Linear(64, 1)

    def forward(self, cloud):
        return self.head(self.point(cloud).amax(0))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--channels", type=int, default=2)
    ap.add_argument("--sweeps", type=int, default=4000)
    ap.add_argument("--points", type=int, default=600)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(0)

    queues, procs = [], []
    for c in range(args.channels):
        q = mp.Queue(maxsize=16)
        p = mp.Process(target=stream_channel, args=(c, args.sweeps, args.points, q), name=f"channel-{c}", daemon=True)
        p.start()
        queues.append(q)
        procs.append(p)

    net = PointNetLite()
    opt = torch.optim.Adam(net.parameters(), 1e-3)
    seen = 0
    for index, channel, cloud in Prefetch(merged(queues)):
        cloud = torch.from_numpy(cloud.copy())
        target = (cloud[:, :3].norm(dim=1).mean() > 1.6).float()[None]
        loss = nn.functional.binary_cross_entropy_with_logits(net(cloud), target)
        opt.zero_grad()
        loss.backward()
        opt.step()
        seen += 1
        if seen % 25 == 0:
            log.info("sweep %d channel %d loss %.4f (%d seen)", index, channel, loss.item(), seen)
        time.sleep(0.02)
    for p in procs:
        p.join()
    log.info("done after %d sweeps", seen)


if __name__ == "__main__":
    main()
