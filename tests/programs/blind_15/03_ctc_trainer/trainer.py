import logging
import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from data import Utterances, collate
from model import CTCModel, training_step

log = logging.getLogger("trainer")


class Trainer:
    def __init__(self, rank, args, port):
        torch.set_num_threads(1)
        torch.manual_seed(args.seed)
        os.environ["MASTER_ADDR"] = "127.0.0.1"
        os.environ["MASTER_PORT"] = str(port)
        dist.init_process_group("gloo", rank=rank, world_size=args.nproc)
        self.rank, self.args = rank, args
        data = Utterances(args.utterances, seed=args.seed)
        self.sampler = DistributedSampler(data, shuffle=True, seed=args.seed, drop_last=True)
        self.loader = DataLoader(data, args.batch_size, sampler=self.sampler,
                                 collate_fn=collate, drop_last=True)
        self.model = DDP(CTCModel())
        self.opt = torch.optim.Adam(self.model.parameters(), lr=args.lr)

    def fit(self):
        for epoch in range(self.args.epochs):
            self.sampler.set_epoch(epoch)
            losses = self.train_epoch(epoch)
            self.epoch_end(epoch, losses)
        dist.destroy_process_group()

    def train_epoch(self, epoch):
        losses = []
        self.model.train()
        for i, batch in enumerate(self.loader):
            loss = training_step(self.model, batch)
            if loss is None:
                continue
            self.opt.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
            self.opt.step()
            losses.append(loss.item())
            if i % 10 == 0 and self.rank == 0:
                log.info("epoch %d batch %d/%d loss %.3f", epoch, i, len(self.loader), losses[-1])
            time.sleep(0.02)
        return losses

    def epoch_end(self, epoch, losses):
        summary = {"mean": sum(losses) / len(losses), "batches": len(losses)}
        gathered = [None] * self.args.nproc
        dist.all_gather_object(gathered, summary)
        if self.rank == 0:
            total = sum(s["batches"] for s in gathered)
            mean = sum(s["mean"] * s["batches"] for s in gathered) / total
            log.info("epoch %d done: loss %.4f over %d batches", epoch, mean, total)
