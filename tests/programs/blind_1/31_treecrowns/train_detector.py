"""Tree crown detector, several processes: torchrun --standalone --nproc-per-node 3 train_detector.py"""
import argparse
import logging
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from metrics import IoUMetric, PrecisionRecall

log = logging.getLogger("crowns")


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, 8, 5, 4), nn.ReLU(), nn.Conv2d(8, 16, 3, 2), nn.ReLU())
        self.box = nn.Conv2d(16, 4, 1)

    def forward(self, x):
        return self.box(self.backbone(x)).mean((2, 3))


class CrownModule:
    def __init__(self, rank, world):
        self.rank, self.world = rank, world
        self.model = DDP(Detector())
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.iou_metric, self.precision_recall_metric = IoUMetric(), PrecisionRecall()

    def train_epoch(self, steps):
        for _ in range(steps):
            x = torch.rand(4, 3, 64, 64)
            loss = (self.model(x) - x.mean()).abs().mean()
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            time.sleep(0.1)
        return loss.item()

    def val_images(self):
        """The survey flies over the lake last."""
        boxes = [5, 9, 4, 7, 3, 8, 6, 5, 0, 0, 0, 0]
        per = len(boxes) // self.world
        return boxes[self.rank * per:(self.rank + 1) * per]

    @torch.no_grad()
    def validate(self):
        for n in self.val_images():
            pred, target = self.model.module(torch.rand(1, 3, 64, 64)), torch.rand(n, 4)
            self.iou_metric.update(pred, target)
            self.precision_recall_metric.update(pred, target)
        return self._compute_epoch_metrics()

    def _compute_epoch_metrics(self):
        metrics = {}
        if len(self.iou_metric.groundtruth_labels) > 0:
            metrics.update(self.iou_metric.compute())
            self.iou_metric.reset()
        metrics.update(self.precision_recall_metric.compute())
        return metrics


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=20)
    ap.add_argument("--val-every", type=int, default=3)
    ap.add_argument("--steps", type=int, default=30)
    args = ap.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [{rank}] %(message)s")
    torch.set_num_threads(1)
    mod = CrownModule(rank, world)
    for ep in range(1, args.epochs + 1):
        loss = mod.train_epoch(args.steps)
        if rank == 0:
            log.info("epoch %d loss %.4f", ep, loss)
        if ep % args.val_every == 0:
            log.info("validation %s", mod.validate())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
