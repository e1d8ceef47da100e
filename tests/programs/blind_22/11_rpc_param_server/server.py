"""Parameter server for asynchronous SGD over torch.distributed.rpc."""
import logging
import threading

import torch
import torch.distributed.rpc as rpc
from torch import nn

import trainer

log = logging.getLogger("ps")

_instance = None
_instance_lock = threading.Lock()


def build_model(width):
    torch.manual_seed(7)
    return nn.Sequential(
        nn.Linear(32, width), nn.ReLU(),
        nn.Linear(width, width), nn.ReLU(),
        nn.Linear(width, 4),
    )


class ParameterServer:
    def __init__(self, width, lr, tune_every):
        self.model = build_model(width)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=lr, momentum=0.9)
        self.tune_every = tune_every
        self.lock = threading.Lock()
        self.version = 0
        self.recent = {}

    def weights(self):
        with self.lock:
            return self.version, [p.detach().clone() for p in self.model.parameters()]

    def apply(self, worker, grads):
        with self.lock:
            for p, g in zip(self.model.parameters(), grads):
                p.grad = g
            self.optimizer.step()
            self.version += 1
            if self.version % self.tune_every == 0:
                self.tune_learning_rate(worker)
            return self.version

    def tune_learning_rate(self, worker):
        """Lower the step size when the worker that just pushed has stopped improving."""
        losses = rpc.rpc_sync(worker, trainer.recent_losses)
        self.recent[worker] = losses
        half = len(losses) // 2
        if half and sum(losses[half:]) > 0.995 * sum(losses[:half]):
            for group in self.optimizer.param_groups:
                group["lr"] *= 0.8
        log.info("version %d: %s reports loss %.4f, lr %.5f", self.version, worker,
                 losses[-1] if losses else float("nan"), self.optimizer.param_groups[0]["lr"])


def create(width, lr, tune_every):
    global _instance
    with _instance_lock:
        if _instance is None:
            _instance = ParameterServer(width, lr, tune_every)


def pull():
    return _instance.weights()


def push(worker, grads):
    return _instance.apply(worker, grads)
