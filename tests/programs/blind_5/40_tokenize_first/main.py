import argparse
import logging
import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from bpe import TinyBpe

log = logging.getLogger("lm")


def make_corpus(n, seed=0):
    rng = random.Random(seed)
    syll = ["ka", "lo", "mi", "ren", "tas", "vo", "shi", "du", "pel", "nor"]
    return [" ".join("".join(rng.choices(syll, k=rng.randint(2, 4))) for _ in range(12)) for _ in range(n)]


class Blocks(Dataset):
    def __init__(self, ids, block):
        self.ids = torch.tensor(ids)
        self.block = block

    def __len__(self):
        return len(self.ids) // self.block - 1

    def __getitem__(self, i):
        s = i * self.block
        return self.ids[s:s + self.block], self.ids[s + 1:s + self.block + 1]


def prepare(args):
    corpus = make_corpus(args.lines)
    bpe = TinyBpe(args.merges)
    t0 = time.time()
    bpe.train([w for line in corpus[:args.lines // 2] for w in line.split()],
              lambda k: log.info("tokenizer: %d of %d merges, %.1fs", k, args.merges, time.time() - t0))
    ids = []
    for n, line in enumerate(corpus, 1):
        ids.extend(bpe.encode(line))
        if n % 500 == 0:
            log.info("encoded %d of %d lines, %.1fs", n, len(corpus), time.time() - t0)
    return ids, len(bpe.vocab) + 1


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--lines", type=int, default=3500)
    p.add_argument("--merges", type=int, default=40)
    p.add_argument("--block", type=int, default=16)
    p.add_argument("--epochs", type=int, default=40)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--interval", type=float, default=0.05)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    ids, vocab = prepare(args)
    log.info("%d tokens, vocabulary of %d", len(ids), vocab)
    loader = DataLoader(Blocks(ids, args.block), batch_size=16, shuffle=True, num_workers=args.workers,
                        persistent_workers=True)
    model = nn.Sequential(nn.Embedding(vocab, 24), nn.Linear(24, vocab))
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(args.epochs):
        for step, (x, y) in enumerate(loader):
            loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 40 == 0:
                log.info("epoch %d step %d loss %.3f", epoch, step, loss.item())
            time.sleep(args.interval)


if __name__ == "__main__":
    main()
