import logging
import time

import torch
from torch import nn

log = logging.getLogger("slicer.trial")


def sgd_step(module, lr):
    with torch.no_grad():
        for p in module.parameters():
            p.sub_(p.grad, alpha=lr)
            p.grad = None


class Trial:
    def __init__(self, name, lr):
        self.name = name
        torch.manual_seed(1)
        self.x = torch.randn(256, 8)
        self.y = self.x.prod(1, keepdim=True)
        self.net = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
        self.lr = lr

    def run(self):
        step = 0
        while True:
            loss = nn.functional.mse_loss(self.net(self.x), self.y)
            loss.backward()
            sgd_step(self.net, self.lr)
            step += 1
            if step % 40 == 0:
                log.info("%s step %d loss %.4f", self.name, step, loss.item())
            time.sleep(0.05)


def trial_main(name, lr):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    torch.set_num_threads(1)
    Trial(name, lr).run()
