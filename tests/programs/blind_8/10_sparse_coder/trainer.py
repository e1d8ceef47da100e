import logging
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("coder")


class SparseCoder(nn.Module):
    def __init__(self, d_in, latents, k=16):
        super().__init__()
        self.encoder = nn.Linear(d_in, latents)
        self.decoder = nn.Linear(latents, d_in)
        self.k = k

    def forward(self, x):
        top = self.encoder(x).topk(self.k, dim=-1)
        acts = torch.zeros(len(x), self.encoder.out_features).scatter(-1, top.indices, top.values.relu())
        return self.decoder(acts)


class CoderTrainer:
    def __init__(self, args, rank):
        self.args = args
        self.rank = rank
        self.model = DDP(SparseCoder(128, args.latents))
        self.opt = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.gen = torch.Generator().manual_seed(rank)
        self.step = 0

    def batch(self):
        base = torch.randn(256, 16, generator=self.gen)
        return base.repeat(1, 8) + 0.1 * torch.randn(256, 128, generator=self.gen)

    def save(self):
        if self.rank != 0:
            return
        path = os.path.join(self.args.out, f"coder_{self.step}.pt")
        torch.save(self.model.module.state_dict(), path)
        log.info("saved %s", path)
        dist.barrier()

    def fit(self):
        while self.step < self.args.steps:
            x = self.batch()
            self.opt.zero_grad()
            loss = (self.model(x) - x).pow(2).mean()
            loss.backward()
            self.opt.step()
            self.step += 1
            if self.rank == 0 and self.step % 10 == 0:
                log.info("step %d fvu %.4f", self.step, loss.item() / x.var().item())
            if self.step % self.args.save_every == 0:
                self.save()


def launch(rank, args):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{args.port}", rank=rank, world_size=args.world_size)
    CoderTrainer(args, rank).fit()
    dist.destroy_process_group()
