"""Curriculum trainer: runs the stages one after another on all ranks."""
import logging
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from data import StageDataset

log = logging.getLogger("curriculum")


class CurriculumTrainer:
    def __init__(self, model, args):
        self.args = args
        self.model = DDP(model, find_unused_parameters=True)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def _get_model(self):
        return self.model.module if isinstance(self.model, DDP) else self.model

    def _average_gradients(self):
        for p in self._get_model().parameters():
            if p.grad is not None:
                dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)
                p.grad /= dist.get_world_size()

    def _train_stage(self, name, dataset, epochs):
        sampler = DistributedSampler(dataset, shuffle=True, seed=self.args.seed)
        loader = DataLoader(dataset, batch_size=self.args.batch_size, sampler=sampler)
        for epoch in range(epochs):
            sampler.set_epoch(epoch)
            started, total = time.perf_counter(), 0.0
            losses = [torch.zeros(1) for _ in range(dist.get_world_size())]
            for batch in loader:
                self.optimizer.zero_grad(set_to_none=True)
                loss = self._get_model().compute_loss(batch)
                loss.backward()
                self._average_gradients()
                self.optimizer.step()
                dist.all_gather(losses, loss.detach().view(1))
                total += float(sum(losses)) / len(losses)
            if dist.get_rank() == 0:
                log.info("%s epoch %d loss %.4f %.2fs", name, epoch, total / len(loader),
                         time.perf_counter() - started)

    def run(self):
        for name, size, share, epochs in self.args.stages:
            if dist.get_rank() == 0:
                log.info("stage %s: %d samples, %.0f%% with series", name, size, 100 * share)
            self._train_stage(name, StageDataset(size, share, self.args.seed), epochs)
