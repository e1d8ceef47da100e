"""Base training followed by mid-training of a small language model (gloo)."""
import argparse
import logging
import os
import socket
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

from optim import MomentumSgd
from tokens import token_loader, write_split

log = logging.getLogger("lm")


class BigramLm(nn.Module):
    def __init__(self, vocab, dim):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.out = nn.Linear(dim, vocab)

    def forward(self, x):
        return self.out(self.emb(x))


class Stage:
    def __init__(self, name, split, steps):
        self.name, self.split, self.steps = name, split, steps


def train_stage(stage, model, opt, root, rank, args):
    loader = token_loader(root, stage.split, rank, args.world_size, args.batch_size)
    t0 = time.monotonic()
    for step in range(1, stage.steps + 1):
        x, y = next(loader)
        loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
        opt.zero_grad()
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= args.world_size
        opt.step()
        time.sleep(0.02)
        if rank == 0 and step % 20 == 0:
            log.info("%s step %d loss %.4f %.1f steps/s", stage.name, step, loss.item(), step / (time.monotonic() - t0))


def worker(rank, args, port, root):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [rank {rank}] %(message)s")
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=args.world_size)
    torch.manual_seed(0)
    model = BigramLm(args.vocab, 32)
    opt = MomentumSgd(model.parameters(), lr=1e-3)
    for stage in (Stage("base", "base", args.base_steps), Stage("mid", "mid", args.mid_steps)):
        if rank == 0:
            log.info("stage %s starts", stage.name)
        train_stage(stage, model, opt, root, rank, args)
    dist.destroy_process_group()


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--world-size", type=int, default=4)
    ap.add_argument("--vocab", type=int, default=256)
    ap.add_argument("--batch-size", type=int, default=8)
    ap.add_argument("--base-steps", type=int, default=40)
    ap.add_argument("--mid-steps", type=int, default=100000)
    a = ap.parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="tokens_") as root:
        write_split(root, "base", files=6, rows=512, length=65, vocab=a.vocab, seed=1)
        write_split(root, "mid", files=2, rows=180, length=65, vocab=a.vocab, seed=2)
        mp.start_processes(worker, args=(a, port, root), nprocs=a.world_size, start_method="fork")
