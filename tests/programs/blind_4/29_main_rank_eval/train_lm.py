"""Bigram language model with DDP; rank 0 evaluates after each epoch while the others wait for it."""
import argparse
import logging
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from evaluation import beam_search_eval

log = logging.getLogger("train")


class Bigram(nn.Module):
    def __init__(self, vocab=500, dim=64):
        super().__init__()
        self.emb, self.out = nn.Embedding(vocab, dim), nn.Linear(dim, vocab)

    def forward(self, tokens):
        return self.out(self.emb(tokens))


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--steps", type=int, default=150)
    p.add_argument("--prompts", type=int, default=180)
    args = p.parse_args()
    rank = int(os.environ["RANK"])
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [rank{rank}] %(name)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(Bigram())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        for step in range(args.steps):
            tokens = torch.randint(0, 500, (16, 33))
            logits = model(tokens[:, :-1])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        log.info("epoch %d loss %.3f", epoch, loss.item())
        if rank == 0:
            log.info("epoch %d beam score %.3f", epoch, beam_search_eval(model.module, args.prompts))
        dist.barrier()
    dist.destroy_process_group()
    log.info("finished")


if __name__ == "__main__":
    main()
