import argparse
import logging
import multiprocessing as mp
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader

from corpus import CmvnStats, UtteranceDataset

log = logging.getLogger("asr_train")


class Encoder(nn.Module):
    def __init__(self, dim, classes):
        super().__init__()
        self.rnn = nn.GRU(dim, 32, batch_first=True)
        self.head = nn.Linear(32, classes)

    def forward(self, x):
        _, h = self.rnn(x[:, ::8])
        return self.head(h[-1])


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=50)
    p.add_argument("--utts", type=int, default=400)
    p.add_argument("--frames", type=int, default=300)
    p.add_argument("--dim", type=int, default=80)
    p.add_argument("--batch-size", type=int, default=4)
    p.add_argument("--workers", type=int, default=3)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    manager = mp.Manager()
    stats = CmvnStats(manager, args.dim)
    stats.update(np.random.default_rng(0).normal(1.0, 2.0, (2000, args.dim)).astype(np.float32))
    data = UtteranceDataset(args.utts, args.frames, args.dim, stats)
    loader = DataLoader(data, batch_size=args.batch_size, shuffle=True,
                        num_workers=args.workers, persistent_workers=True)
    model = Encoder(args.dim, data.classes)
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    loss_fn = nn.CrossEntropyLoss()
    for epoch in range(args.epochs):
        t0 = time.time()
        for step, (x, y) in enumerate(loader):
            loss = loss_fn(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 2 == 0:
                log.info("epoch %d step %d loss %.3f %.1f utt/s", epoch, step, loss.item(),
                         (step + 1) * args.batch_size / (time.time() - t0))


if __name__ == "__main__":
    main()
