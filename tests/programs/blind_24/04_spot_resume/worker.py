"""One rank: trains, snapshots after every epoch, validates on odd epochs."""
import logging
import time

import torch
import torch.distributed as dist
import torch.nn as nn

from snapshots import SnapshotDir

log = logging.getLogger("worker")


class Memory:
    """Hard examples seen so far; travels with the snapshot."""

    def __init__(self, rank, dim=256):
        self.rows = torch.zeros(0, dim)
        self.per_epoch = 1200 * (1 + 3 * rank)
        self.dim = dim

    def extend(self):
        self.rows = torch.cat([self.rows, torch.randn(self.per_epoch, self.dim)])


class Worker:
    def __init__(self, rank, world, port, scratch, args):
        self.rank, self.world, self.args = rank, world, args
        torch.set_num_threads(1)
        dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
        self.snaps = SnapshotDir(scratch, rank)
        torch.manual_seed(3)
        self.model = nn.Sequential(nn.Linear(256, 128), nn.Tanh(), nn.Linear(128, 8))
        self.opt = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.memory = Memory(rank)
        self.start_epoch = 0
        self.gen = torch.Generator().manual_seed(rank)

    def maybe_resume(self):
        found = self.snaps.latest()
        if found is None:
            log.info("no snapshot, starting from scratch")
            return
        epoch, state = found
        self.model.load_state_dict(state["model"])
        self.opt.load_state_dict(state["opt"])
        self.memory.rows = state["memory"]
        self.start_epoch = epoch + 1
        log.info("resumed, next epoch %d", self.start_epoch)

    def train_epoch(self, epoch):
        total = 0.0
        for _ in range(self.args.steps):
            x = torch.randn(32, 256, generator=self.gen)
            y = (x[:, :8].sum(1) > 0).long() + 2 * (x[:, 8] > 0).long()
            loss = nn.functional.cross_entropy(self.model(x), y)
            self.opt.zero_grad()
            loss.backward()
            for p in self.model.parameters():
                dist.all_reduce(p.grad)
                p.grad /= self.world
            self.opt.step()
            total += loss.item()
            time.sleep(0.02)
        self.memory.extend()
        return total / self.args.steps

    @torch.no_grad()
    def validate(self):
        x = torch.randn(512, 256, generator=self.gen)
        y = (x[:, :8].sum(1) > 0).long() + 2 * (x[:, 8] > 0).long()
        hits = (self.model(x).argmax(1) == y).sum().reshape(1)
        parts = [torch.zeros_like(hits) for _ in range(self.world)]
        dist.all_gather(parts, hits)
        return torch.cat(parts).sum().item() / (512 * self.world)

    def state(self):
        return {"model": self.model.state_dict(), "opt": self.opt.state_dict(), "memory": self.memory.rows}

    def run(self):
        self.maybe_resume()
        for epoch in range(self.start_epoch, self.args.epochs):
            loss = self.train_epoch(epoch)
            self.snaps.save(epoch, self.state())
            if epoch % 2 == 1:
                acc = self.validate()
                if self.rank == 0:
                    log.info("epoch %d loss %.4f accuracy %.3f", epoch, loss, acc)
            elif self.rank == 0:
                log.info("epoch %d loss %.4f", epoch, loss)


def entry(rank, world, port, scratch, args):
    logging.basicConfig(level=logging.INFO, force=True,
                        format=f"%(asctime)s [rank {rank}] %(name)s: %(message)s")
    Worker(rank, world, port, scratch, args).run()
