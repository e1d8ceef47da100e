"""SASRec on synthetic histories, with background samplers."""
import argparse
import logging
import time

import numpy as np
import torch
from torch import nn

from sampler import WarpSampler

log = logging.getLogger("sasrec")


def make_histories(usernum, itemnum, seed):
    rng = np.random.default_rng(seed)
    histories = {}
    for user in range(1, usernum + 1):
        length = int(rng.integers(2, 120))
        start = int(rng.integers(1, itemnum))
        walk = (start + np.cumsum(rng.integers(-3, 4, size=length))) % itemnum + 1
        histories[user] = walk.tolist()
    return histories


class SASRec(nn.Module):
    def __init__(self, itemnum, maxlen, hidden, heads, blocks, dropout):
        super().__init__()
        self.items = nn.Embedding(itemnum + 1, hidden, padding_idx=0)
        self.positions = nn.Embedding(maxlen, hidden)
        layer = nn.TransformerEncoderLayer(hidden, heads, 4 * hidden, dropout, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, blocks)
        mask = torch.triu(torch.ones(maxlen, maxlen, dtype=torch.bool), 1)
        self.register_buffer("mask", mask)

    def features(self, seq):
        x = self.items(seq) + self.positions.weight
        return self.encoder(x, mask=self.mask)

    def forward(self, seq, pos, neg):
        x = self.features(seq)
        return (x * self.items(pos)).sum(-1), (x * self.items(neg)).sum(-1)


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--users", type=int, default=3000)
    p.add_argument("--items", type=int, default=5000)
    p.add_argument("--batch-size", type=int, default=64)
    p.add_argument("--maxlen", type=int, default=100)
    p.add_argument("--hidden", type=int, default=128)
    p.add_argument("--samplers", type=int, default=3)
    p.add_argument("--steps-per-epoch", type=int, default=10)
    p.add_argument("--train-seconds", type=float, default=110)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.manual_seed(0)
    histories = make_histories(args.users, args.items, seed=1)
    sampler = WarpSampler(histories, args.users, args.items, args.batch_size, args.maxlen, args.samplers)
    torch.set_num_threads(1)
    model = SASRec(args.items, args.maxlen, args.hidden, heads=2, blocks=2, dropout=0.1)
    optim = torch.optim.Adam(model.parameters(), lr=1e-3)
    bce = nn.BCEWithLogitsLoss()

    started = time.monotonic()
    epoch = 0
    while time.monotonic() - started < args.train_seconds:
        tick, waited, total = time.monotonic(), 0.0, 0.0
        for _ in range(args.steps_per_epoch):
            t0 = time.monotonic()
            _, seq, pos, neg = sampler.next_batch()
            waited += time.monotonic() - t0
            seq, pos, neg = map(torch.from_numpy, (seq, pos, neg))
            optim.zero_grad()
            pos_logits, neg_logits = model(seq, pos, neg)
            real = pos != 0
            loss = bce(pos_logits[real], torch.ones_like(pos_logits[real]))
            loss = loss + bce(neg_logits[real], torch.zeros_like(neg_logits[real]))
            loss.backward()
            optim.step()
            total += loss.item()
        log.info("epoch %d loss %.4f %.1fs (%.2fs for data)", epoch, total / args.steps_per_epoch,
                 time.monotonic() - tick, waited)
        epoch += 1
    sampler.close()
    log.info("done after %d epochs", epoch)


if __name__ == "__main__":
    main()
