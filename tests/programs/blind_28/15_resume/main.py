"""Data-parallel training of the draft model, continued from the checkpoint of an earlier stage."""
import argparse
import logging
import os
import socket
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from checkpointer import Checkpointer
from model import DraftModel, TokenStream, build_optimizer

log = logging.getLogger("train")


def first_stage(folder: str, args):
    torch.manual_seed(args.seed)
    model = DraftModel(args.vocabulary, args.width, args.window)
    optimizer, scheduler = build_optimizer(model, args.lr, args.warmup, args.total)
    stream = TokenStream(args.vocabulary, args.window, args.batch, args.seed)
    for step in range(args.first_stage):
        tokens, target = next(stream)
        loss = F.cross_entropy(model(tokens), target)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        scheduler.step()
    Checkpointer(folder).save(model, optimizer, scheduler, args.first_stage)
    log.info("first stage: %d steps, loss %.4f", args.first_stage, loss.item())


class Trainer:
    def __init__(self, rank: int, world: int, folder: str, args):
        self.rank, self.args = rank, args
        torch.manual_seed(args.seed)
        model = DraftModel(args.vocabulary, args.width, args.window)
        self.optimizer, self.scheduler = build_optimizer(model, args.lr, args.warmup, args.total)
        self.checkpointer = Checkpointer(folder)
        self.step = self.checkpointer.load(model, self.optimizer, self.scheduler) if self.checkpointer.exists() else 0
        self.model = DistributedDataParallel(model)
        self.stream = TokenStream(args.vocabulary, args.window, args.batch, args.seed + 1000 * (rank + 1))
        self.held_out = next(TokenStream(args.vocabulary, args.window, 1024, 99))

    @torch.no_grad()
    def evaluate(self) -> float:
        tokens, target = self.held_out
        return F.cross_entropy(self.model.module(tokens), target).item()

    def run(self):
        while self.step < self.args.total:
            tokens, target = next(self.stream)
            loss = F.cross_entropy(self.model(tokens), target)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.scheduler.step()
            self.step += 1
            if self.step % self.args.log_every == 0:
                log.info("rank %d step %d train loss %.4f held-out loss %.4f", self.rank, self.step, loss.item(), self.evaluate())
            if self.step % self.args.save_every == 0:
                self.checkpointer.save(self.model.module, self.optimizer, self.scheduler, self.step)
            time.sleep(self.args.pause)


def worker(rank: int, world: int, port: int, folder: str, args):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s[%(process)d] %(message)s")
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=world)
    Trainer(rank, world, folder, args).run()
    dist.destroy_process_group()


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--world", type=int, default=3)
    parser.add_argument("--vocabulary", type=int, default=256)
    parser.add_argument("--width", type=int, default=48)
    parser.add_argument("--window", type=int, default=6)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--warmup", type=int, default=200)
    parser.add_argument("--total", type=int, default=400_000)
    parser.add_argument("--first-stage", type=int, default=200)
    parser.add_argument("--pause", type=float, default=0.01)
    parser.add_argument("--log-every", type=int, default=50)
    parser.add_argument("--save-every", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=5)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s[%(process)d] %(message)s")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        first_stage(folder, args)
        mp.spawn(worker, (args.world, free_port(), folder, args), nprocs=args.world)


if __name__ == "__main__":
    main()
