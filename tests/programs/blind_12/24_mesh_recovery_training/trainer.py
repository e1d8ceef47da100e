"""Mesh regression: trainer with validation on the 3D error, data parallel over gloo."""
import logging
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("mesh")

N_VERTS = 6890
N_JOINTS = 14


class MeshRegressor(nn.Module):
    def __init__(self, features=256, shape=24):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(features, 128), nn.ReLU(), nn.Linear(128, shape))
        basis = torch.randn(shape, N_VERTS * 3, generator=torch.Generator().manual_seed(0)) * 0.01
        self.basis = basis

    def forward(self, x):
        return (self.encoder(x) @ self.basis).view(-1, N_VERTS, 3)


class SyntheticBodies:
    def __init__(self, rank, batch_size):
        self.gen = torch.Generator().manual_seed(100 + rank)
        self.batch_size = batch_size
        self.mix = torch.randn(256, 24, generator=torch.Generator().manual_seed(1)) * 0.1

    def batch(self, basis):
        x = torch.randn(self.batch_size, 256, generator=self.gen)
        return x, (x @ self.mix @ basis).view(-1, N_VERTS, 3)


class MeshTrainer:
    def __init__(self, args):
        self.args = args
        self.rank = dist.get_rank()
        self.model = DDP(MeshRegressor())
        self.data = SyntheticBodies(self.rank, args.batch_size)
        self.evaluation_results = {"mpjpe": [], "pve": [], "vertices": []}

    def training_epoch(self):
        basis = self.model.module.basis
        for _ in range(self.args.train_steps):
            x, target = self.data.batch(basis)
            loss = nn.functional.mse_loss(self.model(x), target)
            self.model.zero_grad()
            loss.backward()
            with torch.no_grad():
                for p in self.model.parameters():
                    p -= self.args.lr * p.grad
        return loss.item()

    @torch.no_grad()
    def validation_step(self, x, target):
        pred = self.model.module(x)
        error = (pred - target).norm(dim=-1)
        if self.rank == 0:
            self.evaluation_results["pve"].append(error.mean(dim=1).numpy())
            self.evaluation_results["mpjpe"].append(error[:, :N_JOINTS].mean(dim=1).numpy())
            self.evaluation_results["vertices"].append(pred.numpy())

    def validation_epoch_end(self):
        for key in ("mpjpe", "pve"):
            values = np.concatenate(self.evaluation_results[key])[-self.args.val_steps * self.args.batch_size:]
            log.info("  val %s %.2f mm", key, 1000 * values.mean())

    def fit(self):
        basis = self.model.module.basis
        for epoch in range(self.args.epochs):
            started = time.perf_counter()
            loss = self.training_epoch()
            for _ in range(self.args.val_steps):
                self.validation_step(*self.data.batch(basis))
            if self.rank == 0:
                log.info("epoch %d loss %.5f %.1fs", epoch, loss, time.perf_counter() - started)
                self.validation_epoch_end()
            dist.barrier()
            time.sleep(max(0.0, self.args.epoch_seconds - (time.perf_counter() - started)))
