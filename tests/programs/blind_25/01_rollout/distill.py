"""On-policy distillation: the student rolls out, the teacher scores its tokens."""
import logging
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F

from model import BOS, PAD, TinyLM

log = logging.getLogger("distill")


class PromptSource:
    def __init__(self, vocab, batch, length, seed):
        self.vocab, self.batch, self.length = vocab, batch, length
        self.gen = torch.Generator().manual_seed(seed)

    def next(self):
        body = torch.randint(3, self.vocab, (self.batch, self.length), generator=self.gen)
        return torch.cat([torch.full((self.batch, 1), BOS), body], dim=1)


class OnPolicyDistiller:
    def __init__(self, args, rank):
        self.args, self.rank = args, rank
        # the frozen teacher is partitioned over its own group
        self.teacher_group = dist.new_group()
        self.student = TinyLM(args.vocab, args.dim, args.layers, seed=11)
        self.teacher = TinyLM(args.vocab, args.dim, args.layers + 2, self.teacher_group, seed=23)
        self.teacher.requires_grad_(False)
        self.momentum = [torch.zeros_like(p) for p in self.student.parameters()]
        self.prompts = PromptSource(args.vocab, args.batch_size, args.prompt_len, 100 + rank)
        self.gen = torch.Generator().manual_seed(args.seed + rank)

    def rollout(self):
        return self.student.generate(
            self.prompts.next(), self.args.max_new_tokens, generator=self.gen)

    def score(self, tokens):
        with torch.no_grad():
            return self.teacher(tokens).log_softmax(-1)

    def train_step(self):
        tokens = self.rollout()
        target = self.score(tokens)
        student = self.student(tokens).log_softmax(-1)
        mask = tokens[:, 1:].ne(PAD).float()
        kl = F.kl_div(student, target, log_target=True, reduction="none").sum(-1)[:, :-1]
        loss = (kl * mask).sum() / mask.sum()
        loss.backward()
        self.apply_gradients()
        return loss.item(), mask.sum(1).mean().item()

    @torch.no_grad()
    def apply_gradients(self):
        for param, buf in zip(self.student.parameters(), self.momentum):
            buf.mul_(0.9).add_(param.grad)
            param.add_(buf, alpha=-self.args.lr)
            param.grad = None

    def fit(self):
        for step in range(1, self.args.steps + 1):
            start = time.time()
            loss, length = self.train_step()
            log.info("step %d loss %.4f mean length %.1f (%.2f s)",
                     step, loss, length, time.time() - start)
