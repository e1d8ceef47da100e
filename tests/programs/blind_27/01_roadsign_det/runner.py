"""Epoch based runner."""
import logging
import time

import torch
import torch.distributed as dist
import torch.distributed.tensor  # noqa: F401  (DDP needs it, load it once before the fork)
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from dataset import RoadSignDataset, collate
from detector import DenseDetector, parse_losses

logger = logging.getLogger("mmtrain")


class EpochBasedRunner:
    def __init__(self, args, rank):
        self.args, self.rank = args, rank
        torch.manual_seed(args.seed)
        dataset = RoadSignDataset(args.num_images, filter_empty_gt=args.filter_empty_gt)
        self.sampler = DistributedSampler(dataset, seed=args.seed)
        self.loader = DataLoader(dataset, args.samples_per_gpu, sampler=self.sampler, collate_fn=collate, drop_last=True)
        self.model = DDP(DenseDetector(len(RoadSignDataset.CLASSES)), find_unused_parameters=True)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=args.lr, momentum=0.9)
        self.log_group = dist.new_group()
        self.iter = 0

    def train_step(self, batch):
        losses = self.model(**batch)
        loss, log_vars = parse_losses(losses, self.log_group)
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 10.0)
        self.optimizer.step()
        return log_vars

    def run(self):
        for epoch in range(self.args.max_epochs):
            self.sampler.set_epoch(epoch)
            tic = time.time()
            for i, batch in enumerate(self.loader):
                log_vars = self.train_step(batch)
                self.iter += 1
                if self.rank == 0 and self.iter % self.args.log_interval == 0:
                    text = ", ".join(f"{k}: {v:.4f}" for k, v in log_vars.items())
                    logger.info("Epoch [%d][%d/%d] time: %.3f, %s", epoch + 1, i + 1, len(self.loader),
                                (time.time() - tic) / self.args.log_interval, text)
                    tic = time.time()
