import logging

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

log = logging.getLogger("contrast")


class Encoder(nn.Module):
    def __init__(self, dim, width=64, out=16):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(dim, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.head = nn.Linear(width, out)

    def embed(self, x):
        return nn.functional.normalize(self.head(self.backbone(x)), dim=1)

    def forward(self, x):
        return self.embed(x)


def unwrap(model):
    return model.module if isinstance(model, DistributedDataParallel) else model


class ContrastiveTrainer:
    def __init__(self, rank, world, dataset, batch_size, lr, temperature=0.2):
        self.rank = rank
        self.temperature = temperature
        self.sampler = DistributedSampler(dataset, world, rank, shuffle=True)
        self.loader = DataLoader(dataset, batch_size=batch_size, sampler=self.sampler, drop_last=True)
        self.model = DistributedDataParallel(Encoder(dataset.base.shape[1]))
        self.optim = torch.optim.AdamW(self.model.parameters(), lr=lr)
        self.step = 0

    def loss(self, first, second):
        encoder = unwrap(self.model)
        a, b = encoder.embed(first), encoder.embed(second)
        logits = a @ b.t() / self.temperature
        target = torch.arange(len(a))
        return 0.5 * (nn.functional.cross_entropy(logits, target) + nn.functional.cross_entropy(logits.t(), target))

    def weight_norm(self):
        return torch.stack([p.detach().double().norm() for p in self.model.parameters()]).norm().item()

    def train_epoch(self, epoch, log_every):
        self.sampler.set_epoch(epoch)
        for first, second in self.loader:
            loss = self.loss(first, second)
            self.optim.zero_grad()
            loss.backward()
            self.optim.step()
            self.step += 1
            if self.step % log_every == 0:
                mean = loss.detach().clone()
                dist.all_reduce(mean)
                log.info("rank %d step %d loss %.4f mean %.4f |w| %.6f", self.rank, self.step, loss.item(),
                         mean.item() / dist.get_world_size(), self.weight_norm())
