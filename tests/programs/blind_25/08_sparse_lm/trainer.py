import logging
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

from data import MixtureStream
from moe import ExpertGroup, MoELayer

log = logging.getLogger("sparse_lm")


class SparseLM(nn.Module):
    def __init__(self, args, world):
        super().__init__()
        self.embed = nn.Embedding(args.vocab, args.dim)
        self.mix = nn.GRU(args.dim, args.dim, batch_first=True)
        self.layers = nn.ModuleList(
            MoELayer(args.dim, args.hidden, args.experts, world) for _ in range(args.layers))
        self.head = nn.Linear(args.dim, args.vocab)

    def forward(self, tokens):
        x, _ = self.mix(self.embed(tokens))
        shape = x.shape
        x = x.reshape(-1, shape[-1])
        for layer in self.layers:
            x = layer(x)
        return self.head(x).view(shape[0], shape[1], -1)


class Trainer:
    def __init__(self, args, rank, world):
        self.args, self.rank, self.world = args, rank, world
        torch.manual_seed(args.seed)
        self.model = SparseLM(args, world)
        local = set()
        for module in self.model.modules():
            if isinstance(module, ExpertGroup):
                local.update(id(p) for p in module.parameters())
        self.shared = [p for p in self.model.parameters() if id(p) not in local]
        self.optim = torch.optim.AdamW(self.model.parameters(), lr=args.lr)
        self.stream = MixtureStream(args.vocab, args.domains, args.batch, args.seq, rank, world, args.seed)

    def sync_shared_grads(self):
        """Average the gradients of everything that is replicated; experts keep their own."""
        grads = [p.grad if p.grad is not None else torch.zeros_like(p) for p in self.shared]
        flat = torch.cat([g.reshape(-1) for g in grads])
        dist.all_reduce(flat)
        flat /= self.world
        at = 0
        for p, g in zip(self.shared, grads):
            p.grad = flat[at:at + g.numel()].view_as(p).clone()
            at += g.numel()

    def train_step(self):
        tokens, target = self.stream.next_batch()
        logits = self.model(tokens)
        loss = F.cross_entropy(logits.flatten(0, 1), target.flatten())
        if self.args.balance_coef:
            loss = loss + self.args.balance_coef * sum(l.balance for l in self.model.layers)
        self.optim.zero_grad(set_to_none=True)
        loss.backward()
        self.sync_shared_grads()
        nn.utils.clip_grad_norm_(self.shared, 1.0)
        self.optim.step()
        return loss.item()

    def fit(self):
        start = time.time()
        for step in range(self.args.steps):
            loss = self.train_step()
            if step % self.args.log_every == 0:
                loads = [layer.load.tolist() for layer in self.model.layers]
                log.info("rank %d step %4d loss %.3f tokens/s %.0f load %s", self.rank, step, loss,
                         (step + 1) * self.args.batch * self.args.seq / (time.time() - start), loads)
