import argparse
import logging
import time

import torch
from torch import nn
from torch.utils.data import DataLoader

from corpus import STAGES, ShardStream

log = logging.getLogger("curriculum")


class LanguageModel(nn.Module):
    def __init__(self, vocab=512, dim=96):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, vocab)

    def forward(self, x):
        return self.out(self.rnn(self.emb(x))[0])


def train_stage(name, model, opt, args):
    stream = ShardStream(STAGES[name])
    loader = DataLoader(stream, batch_size=args.batch_size, num_workers=args.workers)
    start = time.time()
    for step, tokens in enumerate(loader):
        if step >= args.steps_per_stage:
            break
        logits = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 10 == 0:
            log.info("%s step %d loss %.3f (%.1fs)", name, step, loss.item(), time.time() - start)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--batch-size", type=int, default=16)
    p.add_argument("--workers", type=int, default=3)
    p.add_argument("--steps-per-stage", type=int, default=30)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    model = LanguageModel()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for name in STAGES:
        log.info("stage %s: %d shards", name, len(STAGES[name]))
        train_stage(name, model, opt, args)


if __name__ == "__main__":
    main()
