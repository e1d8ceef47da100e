"""Instruction tuning of a toy decoder on packed batches."""
import argparse
import logging

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from packing import MultipackBatchSampler

log = logging.getLogger("finetune")


class Conversations(Dataset):
    def __init__(self, n, vocab):
        g = torch.Generator().manual_seed(11)
        self.items = [torch.randint(1, vocab, (int(k),), generator=g)
                      for k in torch.randint(40, 400, (n,), generator=g)]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--samples", type=int, default=96)
    p.add_argument("--effective-batch-size", type=int, default=128)
    p.add_argument("--epochs", type=int, default=4)
    p.add_argument("--workers", type=int, default=2)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)

    data = Conversations(args.samples, vocab=1000)
    lengths = [len(t) for t in data.items]
    sampler = MultipackBatchSampler(lengths, args.effective_batch_size)
    loader = DataLoader(data, batch_sampler=sampler, num_workers=args.workers, persistent_workers=True,
                        collate_fn=lambda items: torch.cat(items))
    model = nn.Sequential(nn.Embedding(1000, 64), nn.Linear(64, 1000))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    log.info("%d conversations, %d tokens", len(data), sum(lengths))
    for epoch in range(args.epochs):
        for tokens in loader:
            loss = nn.functional.cross_entropy(model(tokens[:-1]), tokens[1:])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        log.info("epoch %d loss %.3f", epoch, loss.item())


if __name__ == "__main__":
    main()
