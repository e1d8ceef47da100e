import logging
import math
import os
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

from data import BlurPairs
from sampler import DistributedEvalSampler

log = logging.getLogger("deblur")


class ResBlock(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(n, n, 3, padding=1), nn.BatchNorm2d(n), nn.ReLU(True),
                                  nn.Conv2d(n, n, 3, padding=1), nn.BatchNorm2d(n))

    def forward(self, x):
        return x + self.body(x)


class DeblurNet(nn.Module):
    def __init__(self, n=16, blocks=2):
        super().__init__()
        self.head = nn.Conv2d(3, n, 5, padding=2)
        self.body = nn.Sequential(*[ResBlock(n) for _ in range(blocks)])
        self.tail = nn.Conv2d(n, 3, 5, padding=2)

    def forward(self, x):
        return x + self.tail(self.body(self.head(x)))


class PSNRMeter:
    """Running average of the PSNR over the images of all processes."""

    def __init__(self):
        self.total, self.count = 0.0, 0

    def update(self, output, target):
        mse = F.mse_loss(output, target).item()
        value = torch.tensor([-10 * math.log10(max(mse, 1e-10)), float(len(output))])
        dist.all_reduce(value)
        self.total += value[0].item()
        self.count += int(value[1])

    @property
    def average(self):
        return self.total / max(self.count, 1)


class Trainer:
    def __init__(self, rank, args):
        self.rank, self.args = rank, args
        self.model = DDP(DeblurNet())
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=args.lr)
        train, test = BlurPairs(args.train_size, args.patch, 1), BlurPairs(args.test_size, args.patch, 2)
        self.train_sampler = DistributedSampler(train)
        self.train_loader = DataLoader(train, args.batch_size, sampler=self.train_sampler, drop_last=True)
        self.test_loader = DataLoader(test, 1, sampler=DistributedEvalSampler(test))

    def train(self, epoch):
        self.model.train()
        self.train_sampler.set_epoch(epoch)
        for blurred, sharp in self.train_loader:
            self.optimizer.zero_grad()
            loss = F.l1_loss(self.model(blurred), sharp)
            loss.backward()
            self.optimizer.step()
        if self.rank == 0:
            log.info("epoch %d: loss %.4f", epoch, loss.item())

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        meter = PSNRMeter()
        for step, (blurred, sharp) in enumerate(self.test_loader, 1):
            deblurred = self.model(blurred).clamp(0, 1)
            meter.update(deblurred, sharp)
            if self.rank == 0 and step % 10 == 0:
                log.info("test %d/%d: psnr %.2f", step, len(self.test_loader), meter.average)
        log.info("test done, psnr %.2f over %d images", meter.average, meter.count)
        dist.barrier()
        return meter.average


def run(rank, args, port):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s rank {rank}: %(message)s")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", rank=rank, world_size=args.n_gpus)
    trainer = Trainer(rank, args)
    start = time.perf_counter()
    for epoch in range(1, args.epochs + 1):
        trainer.train(epoch)
    log.info("training took %.1f s, evaluating", time.perf_counter() - start)
    psnr = trainer.evaluate()
    if rank == 0:
        log.info("test psnr %.2f", psnr)
    dist.destroy_process_group()
