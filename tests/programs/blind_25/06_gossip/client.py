import logging
import time

import torch
import torch.nn.functional as F
from torch import nn

from groups import RandomPartition, RoundGroup

log = logging.getLogger("client")


class LocalData:
    """A skewed local data set: every client sees mostly its own classes."""

    def __init__(self, rank, classes, features, n, seed):
        gen = torch.Generator().manual_seed(seed)
        centers = torch.randn(classes, features, generator=gen)
        gen.manual_seed(seed + 1 + rank)
        weights = torch.ones(classes)
        weights[rank::3] = 6
        self.y = torch.multinomial(weights, n, replacement=True, generator=gen)
        self.x = centers[self.y] + 1.5 * torch.randn(n, features, generator=gen)
        self.gen = gen

    def batches(self, count, size):
        for _ in range(count):
            idx = torch.randint(len(self.y), (size,), generator=self.gen)
            yield self.x[idx], self.y[idx]


class Client:
    def __init__(self, args, rank):
        self.args, self.rank = args, rank
        torch.manual_seed(args.seed)
        self.model = nn.Sequential(nn.Linear(args.features, 128), nn.ReLU(),
                                   nn.Linear(128, args.classes))
        self.data = LocalData(rank, args.classes, args.features, 4000, args.seed)
        self.partition = RandomPartition(args.world_size, args.seed)

    def local_training(self):
        total = 0.0
        params = list(self.model.parameters())
        for x, y in self.data.batches(self.args.local_steps, self.args.batch_size):
            loss = F.cross_entropy(self.model(x), y)
            grads = torch.autograd.grad(loss, params)
            with torch.no_grad():
                for p, g in zip(params, grads):
                    p.add_(g, alpha=-self.args.lr)
            total += loss.item()
        return total / self.args.local_steps

    def fit(self):
        start = time.time()
        for number in range(1, self.args.rounds + 1):
            due = time.time() + self.args.round_interval
            loss = self.local_training()
            round_group = RoundGroup(self.partition.draw())
            if self.rank in round_group:
                round_group.average([p.data for p in self.model.parameters()])
            if number % 10 == 0:
                log.info("round %d loss %.4f (%.2f s/round)", number, loss,
                         (time.time() - start) / number)
            time.sleep(max(0.0, due - time.time()))
