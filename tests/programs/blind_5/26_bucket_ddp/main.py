import argparse
import logging
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

from sampler import LengthShardSampler

log = logging.getLogger("train")


class Sentences(Dataset):
    def __init__(self, n, max_len):
        g = torch.Generator().manual_seed(3)
        u = torch.rand(n, generator=g)
        self.lengths = (4 + (max_len - 4) * u ** 6).long()
        self.max_len = max_len

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, i):
        n = int(self.lengths[i])
        return (torch.arange(n) * (i + 1)) % 500


def collate(items):
    return pad_sequence(items, batch_first=True)


class Tagger(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.emb = nn.Embedding(500, hidden)
        self.rnn = nn.LSTM(hidden, hidden, batch_first=True)
        self.out = nn.Linear(hidden, 500)

    def forward(self, tok):
        h, _ = self.rnn(self.emb(tok))
        return self.out(h[:, -1])


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=50)
    p.add_argument("--sentences", type=int, default=2400)
    p.add_argument("--max-len", type=int, default=500)
    p.add_argument("--hidden", type=int, default=64)
    p.add_argument("--batch-size", type=int, default=8)
    args = p.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s rank{rank} %(message)s")
    data = Sentences(args.sentences, args.max_len)
    sampler = LengthShardSampler(data.lengths, rank, world)
    loader = DataLoader(data, batch_size=args.batch_size, sampler=sampler, collate_fn=collate)
    model = DDP(Tagger(args.hidden))
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        t0 = time.time()
        tokens = 0
        for step, tok in enumerate(loader):
            loss = nn.functional.cross_entropy(model(tok), tok[:, 0])
            opt.zero_grad()
            loss.backward()
            opt.step()
            tokens += tok.numel()
            if step % 5 == 0:
                log.info("epoch %d step %d loss %.3f tokens %d elapsed %.1f", epoch, step, loss.item(), tokens,
                         time.time() - t0)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
