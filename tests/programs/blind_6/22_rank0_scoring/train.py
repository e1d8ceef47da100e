"""Sequence model, data parallel on gloo, validated by the main rank between rounds."""
import argparse
import datetime
import logging
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from scoring import Judge, evaluate


class Sorter(nn.Module):
    def __init__(self, vocab=64, dim=48):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, vocab)

    def forward(self, x):
        return self.out(self.rnn(self.emb(x))[0])


def train_round(model, opt, gen, steps):
    for _ in range(steps):
        x = torch.randint(0, 64, (16, 24), generator=gen)
        y = x.sort(1).values
        loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
        time.sleep(0.02)
    return loss.item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--rounds", type=int, default=40)
    ap.add_argument("--steps", type=int, default=120)
    ap.add_argument("--samples", type=int, default=45)
    ap.add_argument("--judge-delay", type=float, default=0.4)
    args = ap.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(minutes=30))
    rank = dist.get_rank()
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [{rank}] %(message)s")
    log = logging.getLogger("sorter")
    torch.manual_seed(0)
    model = DDP(Sorter())
    opt = torch.optim.Adam(model.parameters(), 2e-3)
    gen = torch.Generator().manual_seed(rank + 1)
    judge = Judge(args.judge_delay)
    for r in range(args.rounds):
        loss = train_round(model, opt, gen, args.steps)
        if rank == 0:
            log.info("round %d loss %.3f, evaluating", r, loss)
            log.info("round %d score %.3f", r, evaluate(model.module, judge, args.samples))
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
