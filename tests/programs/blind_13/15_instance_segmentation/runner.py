import logging
import os
import time

import torch
from torch import nn

log = logging.getLogger("segdet")


class Hook:
    def after_train_iter(self, runner):
        pass

    def after_train_epoch(self, runner):
        pass


class CheckpointHook(Hook):
    def __init__(self, interval, max_keep):
        self.interval, self.max_keep, self.saved = interval, max_keep, []

    def after_train_epoch(self, runner):
        if runner.epoch % self.interval:
            return
        path = os.path.join(runner.work_dir, f"epoch_{runner.epoch}.pth")
        torch.save({"meta": {"epoch": runner.epoch, "iter": runner.iter}, "state_dict": runner.model.state_dict()}, path)
        self.saved.append(path)
        while len(self.saved) > self.max_keep:
            os.remove(self.saved.pop(0))


class TextLoggerHook(Hook):
    """Writes the averages of the last iterations; like the buffer, the interval counts inside an epoch."""

    def __init__(self, interval):
        self.interval, self.values, self.t0 = interval, [], time.monotonic()

    def after_train_iter(self, runner):
        self.values.append(runner.loss)
        if runner.inner_iter % self.interval == 0:
            dt = (time.monotonic() - self.t0) / self.interval
            log.info("Epoch [%d][%d/%d] time: %.3f, loss: %.4f", runner.epoch + 1, runner.inner_iter, runner.epoch_len, dt,
                     sum(self.values) / len(self.values))

    def after_train_epoch(self, runner):
        self.values, self.t0 = [], time.monotonic()


class WallTimeHook(Hook):
    def __init__(self, seconds):
        self.end = time.monotonic() + seconds

    def after_train_iter(self, runner):
        runner.stop = time.monotonic() > self.end


class EpochBasedRunner:
    def __init__(self, model, optimizer, work_dir, max_epochs):
        self.model, self.optimizer, self.work_dir, self.max_epochs = model, optimizer, work_dir, max_epochs
        self.hooks, self.epoch, self.iter, self.inner_iter, self.stop = [], 0, 0, 0, False

    def register_hook(self, hook):
        self.hooks.append(hook)

    def call_hook(self, name):
        for hook in self.hooks:
            getattr(hook, name)(self)

    def run(self, loader):
        self.epoch_len = len(loader)
        criterion = nn.CrossEntropyLoss()
        self.model.train()
        while self.epoch < self.max_epochs and not self.stop:
            for self.inner_iter, (image, mask) in enumerate(loader, 1):
                loss = criterion(self.model(image), mask)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.loss = loss.item()
                self.iter += 1
                self.call_hook("after_train_iter")
                if self.stop:
                    break
            else:
                self.epoch += 1
                self.call_hook("after_train_epoch")
