import argparse
import logging
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader

from shards import ShardedCorpus


class TinyLM(nn.Module):
    def __init__(self, vocab=512, dim=64):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, vocab)

    def forward(self, tokens):
        h, _ = self.rnn(self.emb(tokens[:, :-1]))
        logits = self.out(h)
        return nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=10)
    p.add_argument("--batch-size", type=int, default=32)
    p.add_argument("--lr", type=float, default=1e-3)
    args = p.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [rank {rank}] %(message)s")
    model = DDP(TinyLM())
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        loader = DataLoader(ShardedCorpus(rank, world), batch_size=args.batch_size)
        steps = 0
        for tokens in loader:
            loss = model(tokens)
            opt.zero_grad()
            loss.backward()
            opt.step()
            steps += 1
            if steps % 20 == 0:
                logging.info("epoch %d step %d loss %.3f", epoch, steps, loss.item())
        dist.barrier()
        if rank == 0:
            torch.save(model.module.state_dict(), os.path.join("/tmp", "tinylm.pt"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
