"""Compares adapter methods on a QA set; this runs the LoRA configuration with DDP."""
import argparse
import gc
import logging
import os
import socket
import threading
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

from data import MathQA

device = "cuda" if torch.cuda.is_available() else "cpu"
backend = "nccl" if device == "cuda" else "gloo"


def cli():
    p = argparse.ArgumentParser()
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--records", type=int, default=450_000)
    p.add_argument("--vocab", type=int, default=2000)
    p.add_argument("--length", type=int, default=64)
    p.add_argument("--batch-size", type=int, default=8)
    p.add_argument("--lora-rank", type=int, default=8)
    p.add_argument("--steps", type=int, default=100_000)
    p.add_argument("--walltime", type=float, default=125.0)
    return p.parse_args()


class LoraLinear(nn.Module):
    def __init__(self, base, r):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a = nn.Parameter(torch.randn(r, base.in_features) * 0.01)
        self.b = nn.Parameter(torch.zeros(base.out_features, r))

    def forward(self, x):
        return self.base(x) + (x @ self.a.t()) @ self.b.t()


class TinyLM(nn.Module):
    def __init__(self, vocab, r, width=256, layers=4):
        super().__init__()
        self.embed = nn.Embedding(vocab, width).requires_grad_(False)
        self.mix = nn.ModuleList(LoraLinear(nn.Linear(width, width), r) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = LoraLinear(nn.Linear(width, vocab), r)

    def forward(self, ids):
        x = self.embed(ids)
        for mix in self.mix:
            x = x + torch.tanh(mix(x.cumsum(1) / ids.shape[1]))
        return self.head(self.norm(x))


class MemoryLog:
    """Memory figures of each step, for the comparison table."""

    def __init__(self):
        self.reserved = []

    def sample(self):
        if device == "cuda":
            torch.cuda.empty_cache()
        gc.collect()
        if device == "cuda":
            self.reserved.append(torch.cuda.memory_reserved() / 2**20)

    def peak(self):
        return max(self.reserved, default=0.0)


def train(args, rank):
    dataset = MathQA(args.records, args.vocab, args.length, seed=5)
    sampler = DistributedSampler(dataset, args.ranks, rank)
    loader = DataLoader(dataset, args.batch_size, sampler=sampler)
    model = DDP(TinyLM(args.vocab, args.lora_rank).to(device))
    opt = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=1e-3)
    memory, tick = MemoryLog(), time.monotonic()
    for step, ids in zip(range(1, args.steps + 1), loader):
        ids = ids.to(device)
        logits = model(ids[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
        memory.sample()
        if step % 10 == 0 and rank == 0:
            now = time.monotonic()
            logging.info("step %d loss %.3f %.2f s/step reserved peak %.0f MiB", step, loss.item(),
                         (now - tick) / 10, memory.peak())
            tick = now


def main_rank(rank, args, port):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s rank{rank} %(message)s")
    t = threading.Timer(args.walltime, os._exit, (0,))
    t.daemon = True
    t.start()
    os.environ["NCCL_HOSTID"] = f"node{rank}"
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if device == "cuda":
        torch.cuda.set_device(0)
    dist.init_process_group(backend, init_method=f"tcp://127.0.0.1:{port}", rank=rank,
                            world_size=args.ranks)
    train(args, rank)


if __name__ == "__main__":
    args = cli()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(main_rank, args=(args, port), nprocs=args.ranks)
