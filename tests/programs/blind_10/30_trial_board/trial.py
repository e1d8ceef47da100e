import logging
import time

import torch
from torch import nn

log = logging.getLogger("board.trial")


def make_schedule(kind, total):
    if kind == "constant":
        return None
    if kind == "warmup":
        return lambda step: min(1.0, (step + 1) / (0.2 * total))
    raise ValueError(kind)


class Trial:
    def __init__(self, number, lr, schedule, steps=25):
        self.number = number
        self.config = {"lr": lr, "schedule": schedule, "steps": steps}

    def run(self):
        cfg = self.config
        torch.manual_seed(self.number)
        x = torch.randn(200, 8)
        y = x.pow(2).sum(1, keepdim=True)
        net = nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Linear(24, 1))
        shape = make_schedule(cfg["schedule"], cfg["steps"])
        for step in range(cfg["steps"]):
            lr = cfg["lr"] * (shape(step) if shape is not None else 1.0)
            loss = nn.functional.mse_loss(net(x), y)
            net.zero_grad()
            loss.backward()
            with torch.no_grad():
                for p in net.parameters():
                    p.sub_(p.grad, alpha=lr)
            time.sleep(0.04)
        return {"number": self.number, "loss": loss.item(), "config": dict(cfg, shape=shape)}


def trial_worker(trials, results):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    torch.set_num_threads(1)
    for trial in trials:
        results.put(trial.run())
        log.info("trial %d finished", trial.number)
