import logging
import time

import torch
from torch import nn

log = logging.getLogger("mining")


class FeatureNet(nn.Module):
    def __init__(self, dim, features):
        super().__init__()
        self.stem = nn.Linear(dim, features)
        self.head = nn.Linear(features, 10)

    def forward(self, x):
        f = torch.relu(self.stem(x))
        return f, self.head(f)


class HardBank:
    """Keeps the feature vector of the worst example of each batch, for later retraining."""

    def __init__(self, capacity=6000):
        self.capacity = capacity
        self.entries = []

    def offer(self, features, losses):
        worst = int(losses.argmax())
        self.entries.append((losses[worst].item(), features[worst]))
        if len(self.entries) > self.capacity:
            self.entries.sort(key=lambda e: e[0])
            del self.entries[: self.capacity // 10]

    def nbytes(self):
        return sum(f.numel() * f.element_size() for _, f in self.entries)


def mine(worker_id, args, reports):
    torch.set_num_threads(1)
    torch.manual_seed(worker_id)
    net = FeatureNet(64, args.features).eval()
    bank = HardBank()
    n = 0
    while True:
        x, y = torch.randn(args.batch_size, 64), torch.randint(0, 10, (args.batch_size,))
        with torch.no_grad():
            features, logits = net(x)
            losses = nn.functional.cross_entropy(logits, y, reduction="none")
        bank.offer(features, losses)
        n += 1
        if n % 10 == 0:
            reports.put((worker_id, n, len(bank.entries), bank.nbytes(), losses.mean().item()))
        time.sleep(args.pause)
