"""Training loop."""
import logging
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

from async_utils import AsyncCallsQueue

logger = logging.getLogger("training")


class GPTBlockStack(nn.Module):
    def __init__(self, vocab=2048, dim=192, layers=2):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))
                                    for _ in range(layers))
        self.head = nn.Linear(dim, vocab)

    def forward(self, tokens):
        h = self.embed(tokens).cumsum(1) / torch.arange(1, tokens.shape[1] + 1).view(1, -1, 1)
        for block in self.blocks:
            h = h + block(h)
        return self.head(h)


class Trainer:
    def __init__(self, args, rank, save_dir):
        self.args, self.rank = args, rank
        torch.manual_seed(args.seed)
        self.model = GPTBlockStack()
        self.momentum = {n: torch.zeros_like(p) for n, p in self.model.named_parameters()}
        self.calls = AsyncCallsQueue(save_dir, rank, args.keep_checkpoints, args.write_mb_per_s * 1e6)
        self.gen = torch.Generator().manual_seed(args.seed + 1000 * rank)

    def state_dict(self):
        state = {f"model.{n}": p for n, p in self.model.named_parameters()}
        state.update({f"optimizer.{n}": m for n, m in self.momentum.items()})
        return state

    def train_step(self):
        tokens = torch.randint(0, 2048, (self.args.micro_batch_size, 65), generator=self.gen)
        loss = F.cross_entropy(self.model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        self.model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for name, p in self.model.named_parameters():
                dist.all_reduce(p.grad)
                self.momentum[name].mul_(0.9).add_(p.grad, alpha=1 / dist.get_world_size())
                p -= self.args.lr * self.momentum[name]
        return loss.item()

    def train(self):
        tic = time.time()
        for iteration in range(1, self.args.train_iters + 1):
            loss = self.train_step()
            self.calls.maybe_finalize()
            if iteration % self.args.save_interval == 0:
                start = time.time()
                self.calls.schedule(iteration, self.state_dict())
                logger.info("rank %d: scheduled checkpoint of iteration %d (%.2f s)", self.rank, iteration, time.time() - start)
            if self.rank == 0 and iteration % 10 == 0:
                logger.info("iteration %d/%d | loss %.4f | %.0f ms/iter", iteration, self.args.train_iters, loss,
                            (time.time() - tic) * 100)
                tic = time.time()
        self.calls.maybe_finalize(blocking=True)
