"""Data-parallel trainer with automatic microbatching."""
import argparse
import logging
import os
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

from data import DocStream
from memory import ActivationBudget, is_oom

log = logging.getLogger("trainer")


class TinyLM(nn.Module):
    def __init__(self, vocab=256, width=96):
        super().__init__()
        self.emb = nn.Embedding(vocab, width)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.proj = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, vocab))

    def forward(self, ids):
        h, _ = self.rnn(self.emb(ids))
        return self.proj(h)


class Trainer:
    def __init__(self, args):
        self.args = args
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(0)
        self.model = TinyLM()
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=args.lr)
        self.budget = ActivationBudget(args.budget_mb)
        self.num_microbatches = 1
        self.stream = DocStream(self.rank)

    def _global_tokens(self, batch):
        mine = (batch[:, 1:] != 0).sum().reshape(1)
        counts = [torch.zeros_like(mine) for _ in range(self.world)]
        dist.all_gather(counts, mine)
        return int(torch.stack(counts).sum())

    def _reduce_gradients(self):
        flat = torch.cat([p.grad.flatten() for p in self.model.parameters()])
        dist.all_reduce(flat)
        at = 0
        for p in self.model.parameters():
            n = p.numel()
            p.grad.copy_(flat[at:at + n].view_as(p))
            at += n

    def _train_microbatches(self, batch):
        tokens = self._global_tokens(batch)
        total = 0.0
        for mb in batch.chunk(self.num_microbatches):
            with self.budget.track():
                logits = self.model(mb[:, :-1])
                loss = F.cross_entropy(logits.flatten(0, 1), mb[:, 1:].flatten(),
                                       ignore_index=0, reduction="sum") / tokens
            loss.backward()
            total += loss.item()
        self._reduce_gradients()
        return total

    def train_batch(self, batch):
        while True:
            self.opt.zero_grad(set_to_none=True)
            try:
                loss = self._train_microbatches(batch)
                break
            except RuntimeError as err:
                if not is_oom(err) or self.num_microbatches >= len(batch):
                    raise
                self.num_microbatches *= 2
                log.warning("%s; retrying batch with %d microbatches", err, self.num_microbatches)
        self.opt.step()
        return loss

    def fit(self):
        began = time.time()
        for step in range(self.args.steps):
            batch = self.stream.batch(self.args.batch_size)
            loss = self.train_batch(batch)
            if self.rank == 0 and step % 5 == 0:
                log.info("step %d width %d loss share %.3f peak %.1f MiB (%.1fs)", step,
                         batch.shape[1], loss, self.budget.peak / 2 ** 20, time.time() - began)
            time.sleep(self.args.pause)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=2000)
    ap.add_argument("--batch-size", type=int, default=16)
    ap.add_argument("--budget-mb", type=float, default=68.0)
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("--pause", type=float, default=0.25, help="stand-in for the sensor download")
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO,
                        format=f"%(asctime)s [rank {os.environ['RANK']}] %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    Trainer(args).fit()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
