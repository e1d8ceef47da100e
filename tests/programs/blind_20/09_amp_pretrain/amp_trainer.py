"""Trainer with half precision and dynamic loss scaling."""
import logging

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("pretrain")


class Projector(nn.Module):
    def __init__(self, features: int, hidden: int, prototypes: int):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, hidden // 2))
        self.prototypes = nn.Linear(hidden // 2, prototypes, bias=False)

    def forward(self, x):
        return self.prototypes(self.body(x))


class ClusterData:
    """Two noisy views of points from fixed clusters."""

    def __init__(self, features: int, clusters: int, seed: int, rank: int):
        self.centres = torch.randn(clusters, features, generator=torch.Generator().manual_seed(seed))
        self.gen = torch.Generator().manual_seed(seed + 17 * (rank + 1))

    def views(self, size: int):
        which = torch.randint(len(self.centres), (size,), generator=self.gen)
        base = self.centres[which]
        noise = [0.8 * torch.randn(base.shape, generator=self.gen) for _ in range(2)]
        return base + noise[0], base + noise[1], which


class Trainer:
    def __init__(self, args, rank: int):
        self.args, self.rank = args, rank
        torch.manual_seed(args.seed)
        self.model = DDP(Projector(args.features, args.hidden, args.clusters))
        self.opt = torch.optim.SGD(self.model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-5)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=args.init_scale, growth_interval=args.growth_interval)
        self.data = ClusterData(args.features, args.clusters, args.seed, rank)
        self.skipped = 0

    def loss(self, a, b, which):
        with torch.autocast("cpu", dtype=torch.float16):
            out = self.model(torch.cat([a, b]))
        pa, pb = out.float().chunk(2)
        swap = F.mse_loss(pa.softmax(1), pb.softmax(1))
        return F.cross_entropy(pa, which) + F.cross_entropy(pb, which) + swap

    def step(self) -> float:
        a, b, which = self.data.views(self.args.batch_size)
        self.opt.zero_grad(set_to_none=True)
        loss = self.loss(a, b, which)
        self.scaler.scale(loss).backward()
        before = self.scaler.get_scale()
        self.scaler.step(self.opt)
        self.scaler.update()
        after = self.scaler.get_scale()
        if after < before:
            self.skipped += 1
            log.warning("Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to %s", after)
        return loss.item()
