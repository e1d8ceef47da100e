"""Strictly synchronous PPO: collect (learner idle), then many epochs of updates (samplers idle)."""
import argparse
import logging
import multiprocessing as mp
import time

import torch
from torch import nn

from sampler import sampler

log = logging.getLogger("sync_ppo")


class Learner:
    def __init__(self, dim):
        self.dim, self.v = dim, nn.Sequential(nn.Linear(dim, 128), nn.Tanh(), nn.Linear(128, 1))
        self.opt = torch.optim.Adam(self.v.parameters(), lr=1e-3)

    def update(self, frames, epochs):
        s = torch.tensor([f[0] for f in frames])
        y = torch.tensor([[f[1]] for f in frames])
        for _ in range(epochs):
            for idx in torch.randperm(len(s)).split(64):
                loss = (self.v(s[idx]) - y[idx]).pow(2).mean()
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                time.sleep(0.004)
        return loss.item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--samplers", type=int, default=3)
    ap.add_argument("--frames", type=int, default=600)
    ap.add_argument("--epochs", type=int, default=35)
    ap.add_argument("--iterations", type=int, default=50)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    conns = []
    for i in range(args.samplers):
        a, b = mp.Pipe()
        mp.Process(target=sampler, args=(i, b), name=f"sampler-{i}", daemon=True).start()
        conns.append(a)
    lr_ = Learner(12)
    w = [0.1] * 12
    for it in range(args.iterations):
        t0 = time.time()
        for c in conns:
            c.send((w, args.frames))
        frames = [f for c in conns for f in c.recv()]
        t1 = time.time()
        loss = lr_.update(frames, args.epochs)
        w = [x + 0.01 for x in w]
        log.info("iteration %d: collect %.1fs update %.1fs loss %.4f", it, t1 - t0, time.time() - t1, loss)


if __name__ == "__main__":
    main()
