import argparse
import logging
import tempfile
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from checkpoint import CheckpointManager

log = logging.getLogger("trainer")


class Pairs(Dataset):
    def __len__(self):
        return 1_000_000

    def __getitem__(self, i):
        time.sleep(0.01)
        a = i % 20000
        return a, (a * 31 + 7) % 20000


class Matcher(nn.Module):
    def __init__(self, n, dim):
        super().__init__()
        self.left = nn.Embedding(n, dim, sparse=False)
        self.right = nn.Embedding(n, dim, sparse=False)

    def forward(self, a, b):
        return (self.left(a) * self.right(b)).sum(1)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--dim", type=int, default=128)
    p.add_argument("--minutes", type=float, default=1.3)
    p.add_argument("--every", type=float, default=12.0, help="seconds between checkpoints")
    p.add_argument("--keep", type=int, default=2)
    p.add_argument("--workers", type=int, default=2)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    model = Matcher(20000, args.dim)
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    loader = DataLoader(Pairs(), batch_size=16, num_workers=args.workers)
    end = time.time() + 60 * args.minutes
    with tempfile.TemporaryDirectory(prefix="ckpt_") as folder:
        manager = CheckpointManager(folder, args.keep)
        last = time.time()
        for step, (a, b) in enumerate(loader):
            loss = (1 - model(a, b)).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 20 == 0:
                log.info("step %d loss %.4f", step, loss.item())
            if time.time() - last > args.every:
                digest, took = manager.save(step, model, opt)
                log.info("checkpoint at step %d (%s) written and verified in %.1fs", step, digest, took)
                last = time.time()
            if time.time() > end:
                break
        log.info("done after %d steps", step)


if __name__ == "__main__":
    main()
