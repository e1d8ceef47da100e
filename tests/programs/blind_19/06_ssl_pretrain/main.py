"""Self-distillation pretraining with multi-crop augmentation (small CPU configuration)."""
import argparse
import copy
import gc
import logging
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader

from data import MultiCropDataset

log = logging.getLogger("pretrain")


class Backbone(nn.Module):
    def __init__(self, dim=48, out=64):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(3, 8, 4, stride=4), nn.GELU(), nn.Conv2d(8, dim, 4, stride=4), nn.GELU(), nn.AdaptiveAvgPool2d(1)
        )
        self.head = nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.Linear(dim, out))

    def forward(self, x):
        return self.head(self.conv(x).flatten(1))


class SelfDistillation:
    def __init__(self, args):
        self.student = Backbone()
        self.teacher = copy.deepcopy(self.student).requires_grad_(False)
        self.center = torch.zeros(64)
        self.momentum = args.momentum
        self.opt = torch.optim.AdamW(self.student.parameters(), lr=args.lr)

    def step(self, crops_g, crops_l, overlap):
        b, ng = crops_g.shape[:2]
        nl = crops_l.shape[1]
        g = crops_g.permute(0, 1, 4, 2, 3).flatten(0, 1).contiguous()
        l = crops_l.permute(0, 1, 4, 2, 3).flatten(0, 1).contiguous()
        with torch.no_grad():
            t = self.teacher(g)
            target = F.softmax((t - self.center) / 0.04, 1).view(b, ng, -1)
            self.center.mul_(0.9).add_(t.mean(0), alpha=0.1)
        s = torch.cat([self.student(g).view(b, ng, -1), self.student(l).view(b, nl, -1)], 1)
        logp = F.log_softmax(s / 0.1, 2)
        loss = torch.zeros(())
        for i in range(ng):
            for j in range(ng + nl):
                if i != j:
                    loss = loss - ((target[:, i] * logp[:, j]).sum(1) * (0.5 + overlap[:, j])).mean()
        loss = loss / (ng * (ng + nl - 1))
        self.opt.zero_grad(set_to_none=True)
        loss.backward()
        self.opt.step()
        with torch.no_grad():
            for p, q in zip(self.student.parameters(), self.teacher.parameters()):
                q.mul_(self.momentum).add_(p, alpha=1 - self.momentum)
        return float(loss.detach())


def do_train(args):
    dataset = MultiCropDataset(args.images, read_latency=args.read_latency)
    model = SelfDistillation(args)
    gc.disable()
    gc.collect()
    loader = DataLoader(dataset, batch_size=args.batch_size, shuffle=True, num_workers=args.workers,
                        prefetch_factor=2, drop_last=True, multiprocessing_context="fork")
    started, iteration = time.time(), 0
    for batch in loader:
        loss = model.step(*batch)
        iteration += 1
        if iteration % 20 == 0:
            log.info("iter %d loss %.4f %.1f images/s", iteration, loss,
                     iteration * args.batch_size / (time.time() - started))
        if time.time() - started > args.max_seconds:
            log.info("reached max_seconds, saving and leaving")
            break
        if iteration % 150 == 0:
            gc.collect()
    return model


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--images", type=int, default=200000)
    p.add_argument("--batch-size", type=int, default=8)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--lr", type=float, default=5e-4)
    p.add_argument("--momentum", type=float, default=0.996)
    p.add_argument("--read-latency", type=float, default=0.06)
    p.add_argument("--max-seconds", type=float, default=115)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    do_train(args)


if __name__ == "__main__":
    main()
