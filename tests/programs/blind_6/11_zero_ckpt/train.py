"""Volume segmentation with sharded Adam; launched with torchrun."""
import argparse
import logging
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP

from checkpoint import Checkpointer


class SegNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv3d(1, width, 3, padding=1), nn.ReLU(),
            nn.Conv3d(width, width, 3, padding=1), nn.ReLU(),
            nn.Conv3d(width, 2, 1),
        )

    def forward(self, x):
        return self.net(x)


def synthetic_batch(gen, size=12):
    x = torch.randn(2, 1, size, size, size, generator=gen)
    return x, (x.mean(1) > 0.3).long()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=5000)
    ap.add_argument("--save-every", type=int, default=50)
    ap.add_argument("--out", default=None)
    args = ap.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [{rank}] %(message)s")
    log = logging.getLogger("seg")

    torch.manual_seed(0)
    model = DDP(SegNet())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=1e-3)
    ckpt = Checkpointer(args.out or tempfile.mkdtemp(prefix="seg_"))
    gen = torch.Generator().manual_seed(rank)
    for step in range(1, args.steps + 1):
        x, y = synthetic_batch(gen)
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0 and rank == 0:
            log.info("step %d loss %.4f", step, loss.item())
        if step % args.save_every == 0:
            ckpt.save(step, model, optimizer)
        time.sleep(0.02)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
