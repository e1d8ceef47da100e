import logging

import torch
import torch.distributed as dist
from torch import nn

from control import StopController

log = logging.getLogger("tracker")


class PoseNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 26))

    def forward(self, x):
        return self.net(x)


class PoseTrainer:
    def __init__(self, rank, args, controller):
        torch.manual_seed(0)
        self.rank = rank
        self.args = args
        self.controller = controller
        self.model = PoseNet()
        self.opt = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.gen = torch.Generator().manual_seed(rank)
        self.proj = torch.randn(64, 26, generator=torch.Generator().manual_seed(9)) / 8

    def average_gradients(self):
        for p in self.model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= self.args.world_size

    def train_epoch(self):
        for _ in range(self.args.batches):
            x = torch.randn(256, 64, generator=self.gen)
            loss = (self.model(x) - x @ self.proj).pow(2).mean()
            self.opt.zero_grad()
            loss.backward()
            self.average_gradients()
            self.opt.step()
        return loss.item()

    def fit(self):
        for epoch in range(self.args.epochs):
            loss = self.train_epoch()
            if self.rank == 0 and epoch % 5 == 0:
                log.info("epoch %d loss %.4f", epoch, loss)
            self.controller.on_epoch_end(epoch, loss)
            dist.barrier()
            if self.controller.should_stop:
                break
        return {"rank": self.rank, "epochs": epoch + 1, "loss": loss}


def train_rank(rank, args, commands, progress):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{args.port}", rank=rank, world_size=args.world_size)
    summary = PoseTrainer(rank, args, StopController(rank, commands, progress)).fit()
    table = [None] * args.world_size if rank == 0 else None
    dist.gather_object(summary, table, dst=0)
    if rank == 0:
        log.info("summary %s", table)
    dist.destroy_process_group()
