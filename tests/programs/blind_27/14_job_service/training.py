import logging
import os
import time

import torch
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader

from data import SensorDataset

log = logging.getLogger("training")


class MomentumSGD:
    def __init__(self, params, lr, momentum=0.9):
        self.params = list(params)
        self.lr, self.momentum = lr, momentum
        self.velocity = [torch.zeros_like(p) for p in self.params]

    def minimize(self, loss):
        grads = torch.autograd.grad(loss, self.params)
        with torch.no_grad():
            for p, v, g in zip(self.params, self.velocity, grads):
                v.mul_(self.momentum).add_(g)
                p.sub_(self.lr * v)


class Trainer:
    def __init__(self, config, report):
        self.config = config
        self.report = report
        torch.manual_seed(config["seed"])
        self.model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 4))
        self.opt = MomentumSGD(self.model.parameters(), lr=0.02)
        self.train_set = SensorDataset(4096, seed=config["seed"])
        self.val_set = SensorDataset(1024, seed=config["seed"] + 1)

    def train_epoch(self, epoch):
        steps, size = self.config["steps"], self.config["batch_size"]
        for step in range(steps):
            rows = torch.randint(len(self.train_set), (size,))
            loss = F.cross_entropy(self.model(self.train_set.x[rows]), self.train_set.y[rows])
            self.opt.minimize(loss)
            time.sleep(0.03)
            if step % 10 == 0:
                self.report((epoch + step / steps) / self.config["epochs"])
        return loss.item()

    @torch.no_grad()
    def validate(self):
        loader = DataLoader(self.val_set, batch_size=self.config["batch_size"],
                            num_workers=self.config["num_workers"])
        hits = sum(int((self.model(x).argmax(dim=1) == y).sum()) for x, y in loader)
        return hits / len(self.val_set)

    def fit(self):
        for epoch in range(self.config["epochs"]):
            loss = self.train_epoch(epoch)
            accuracy = self.validate()
            log.info("epoch %d loss %.4f accuracy %.3f", epoch, loss, accuracy)
        return self.model


class TrainingWorker(mp.Process):
    def __init__(self, jobs, status, root):
        super().__init__(name="TrainingWorker", daemon=True)
        self.jobs = jobs
        self.status = status
        self.root = root

    def _set(self, job_id, state, progress):
        self.status[job_id] = {"state": state, "progress": progress}

    def run(self):
        torch.set_num_threads(1)
        while True:
            job_id, config = self.jobs.get()
            log.info("%s starts: %s", job_id, config)
            self._set(job_id, "RUNNING", 0.0)
            trainer = Trainer(config, lambda p: self._set(job_id, "RUNNING", p))
            try:
                model = trainer.fit()
            except RuntimeError as err:
                log.error("%s failed: %s", job_id, err)
                self._set(job_id, "FAILED", 0.0)
                continue
            torch.save(model.state_dict(), os.path.join(self.root, f"{job_id}.pt"))
            self._set(job_id, "COMPLETED", 1.0)
