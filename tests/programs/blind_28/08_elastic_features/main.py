import argparse
import logging
import time

import numpy as np
import torch
from torch import nn

from features import spectrogram
from pool import ElasticPool

log = logging.getLogger("train")


class Classifier(nn.Module):
    def __init__(self, bins=129, classes=8):
        super().__init__()
        self.rnn = nn.GRU(bins, 64, batch_first=True)
        self.out = nn.Linear(64, classes)

    def forward(self, x):
        return self.out(self.rnn(x)[0].mean(1))


def train_phase(model, optim, x, y, seconds, batch_size, pool):
    until, losses = time.time() + seconds, []
    while time.time() < until:
        pick = torch.randint(0, len(x), (batch_size,))
        loss = nn.functional.cross_entropy(model(x[pick]), y[pick])
        optim.zero_grad()
        loss.backward()
        optim.step()
        losses.append(loss.item())
        pool.scale_down()
    return sum(losses) / len(losses), len(losses)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--clips", type=int, default=120, help="new clips per round")
    parser.add_argument("--clip-seconds", type=float, default=6.0)
    parser.add_argument("--train-seconds", type=float, default=14.0)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--max-workers", type=int, default=3)
    parser.add_argument("--keepalive", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=100000)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)

    pool = ElasticPool(spectrogram, max_workers=args.max_workers, keepalive=args.keepalive)
    model = Classifier()
    optim = torch.optim.Adam(model.parameters(), lr=1e-3)
    for round_no in range(args.rounds):
        began = time.time()
        clips = pool.map([(round_no * args.clips + i, args.clip_seconds) for i in range(args.clips)])
        x = torch.from_numpy(np.stack([c for c, _ in clips]))
        y = torch.tensor([label for _, label in clips])
        log.info("round %d: %d clips in %.1f s, %d workers", round_no, len(clips), time.time() - began, len(pool.workers))
        loss, steps = train_phase(model, optim, x, y, args.train_seconds, args.batch_size, pool)
        log.info("round %d: loss %.3f in %d steps", round_no, loss, steps)
    pool.close()


if __name__ == "__main__":
    main()
