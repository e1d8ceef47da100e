"""Data-parallel language model with per-domain loss weighting (one process group per domain)."""
import argparse
import datetime
import logging
import os
import socket
import threading
import time
from collections import defaultdict

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

from mixture import DOMAINS, DomainMixture

log = logging.getLogger("train")


class TinyLM(nn.Module):
    def __init__(self, vocab, dim):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.head = nn.Linear(dim, vocab)

    def forward(self, tokens):
        return self.head(self.rnn(self.embed(tokens))[0])


class DomainWeights:
    """Group-DRO style weights from the globally averaged loss of each domain."""

    def __init__(self, step_size):
        self.step_size = step_size
        self.weights = {d: 1.0 for d in DOMAINS}
        self.groups = {d: dist.new_group() for d in DOMAINS}
        self.sums = defaultdict(float)
        self.counts = defaultdict(int)

    def observe(self, domains, losses):
        for domain, loss in zip(domains, losses.tolist()):
            self.sums[domain] += loss
            self.counts[domain] += 1

    def refresh(self):
        seen = {d for d in DOMAINS if self.counts[d]}
        for domain in seen:
            stat = torch.tensor([self.sums[domain], float(self.counts[domain])])
            dist.all_reduce(stat, group=self.groups[domain])
            mean = (stat[0] / stat[1]).item()
            self.weights[domain] *= 2.718 ** (self.step_size * mean)
        total = sum(self.weights.values())
        self.weights = {d: w * len(DOMAINS) / total for d, w in self.weights.items()}
        self.sums.clear()
        self.counts.clear()


def average_gradients(model, world):
    flat = torch.cat([p.grad.reshape(-1) for p in model.parameters()])
    dist.all_reduce(flat)
    flat /= world
    at = 0
    for p in model.parameters():
        p.grad.copy_(flat[at:at + p.numel()].view_as(p))
        at += p.numel()


def run(rank, args, port):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s rank{rank} %(message)s")
    limit = threading.Timer(args.max_seconds, os._exit, (0,))
    limit.daemon = True
    limit.start()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=args.world,
                            timeout=datetime.timedelta(minutes=20))
    model = TinyLM(args.vocab, args.dim)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = DomainMixture(rank, args.vocab, args.length)
    mix = DomainWeights(args.step_size)
    started = time.time()
    for step in range(1, args.steps + 1):
        docs = data.batch(args.batch)
        domains = [d for d, _ in docs]
        tokens = torch.tensor([t for _, t in docs])
        logits = model(tokens[:, :-1])
        losses = nn.functional.cross_entropy(
            logits.transpose(1, 2), tokens[:, 1:], reduction="none").mean(1)
        weights = torch.tensor([mix.weights[d] for d in domains])
        opt.zero_grad()
        (losses * weights).mean().backward()
        average_gradients(model, args.world)
        opt.step()
        mix.observe(domains, losses.detach())
        if step % args.log_every == 0 and rank == 0:
            log.info("step %d loss %.4f %.1f steps/s", step, losses.mean().item(),
                     step / (time.time() - started))
        if step % args.refresh_every == 0:
            mix.refresh()
            if rank == 0:
                log.info("weights %s", {d: round(w, 2) for d, w in mix.weights.items()})
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--world", type=int, default=3)
    p.add_argument("--steps", type=int, default=20_000)
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--length", type=int, default=24)
    p.add_argument("--vocab", type=int, default=512)
    p.add_argument("--dim", type=int, default=48)
    p.add_argument("--step-size", type=float, default=0.05)
    p.add_argument("--log-every", type=int, default=10)
    p.add_argument("--refresh-every", type=int, default=25)
    p.add_argument("--max-seconds", type=float, default=100)
    args = p.parse_args()
    mp.spawn(run, args=(args, free_port()), nprocs=args.world)


if __name__ == "__main__":
    main()
