import logging
import time

import torch
from torch import nn

log = logging.getLogger("side.validator")


class SegNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1), nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1), nn.ReLU(),
            nn.Conv2d(width, 1, 1),
        )

    def forward(self, x):
        return self.body(x)


class History:
    """Everything the validator has seen so far, for the running summary."""

    def __init__(self):
        self.losses = []

    def add(self, loss):
        self.losses.append(loss)

    def summary(self, last=20):
        recent = torch.stack([v.detach() for v in self.losses[-last:]])
        return recent.mean().item(), recent.min().item()


class Validator:
    def __init__(self, size, batch):
        gen = torch.Generator().manual_seed(9)
        self.x = torch.randn(batch, 1, size, size, generator=gen)
        self.y = (self.x > 0.3).float()
        self.net = SegNet()
        self.history = History()

    def score(self, weights):
        self.net.load_state_dict(weights)
        self.net.eval()
        shift = len(self.history.losses) % self.x.shape[-1]
        x, y = self.x.roll(shift, -1), self.y.roll(shift, -1)
        loss = nn.functional.binary_cross_entropy_with_logits(self.net(x), y)
        self.history.add(loss)
        return loss.item()


def validator_main(inbox, size, batch):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    torch.set_num_threads(1)
    validator = Validator(size, batch)
    while True:
        message = inbox.get()
        if message is None:
            return
        step, weights = message
        loss = validator.score({k: torch.from_numpy(v) for k, v in weights.items()})
        if step % 100 == 0:
            log.info("step %d val %.4f, recent mean %.4f min %.4f", step, loss, *validator.history.summary())
        time.sleep(0.01)
