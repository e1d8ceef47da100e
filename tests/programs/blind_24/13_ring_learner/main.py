"""Off-policy learner with a ring buffer and two actors."""
import argparse
import logging
import multiprocessing as mp
import time
from multiprocessing.connection import wait

import numpy as np
import torch
import torch.nn as nn

from actor import rollout
from buffer import RingBuffer

log = logging.getLogger("learner")


class QNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 8, 8, stride=4), nn.ReLU(), nn.Conv2d(8, 16, 4, stride=2),
                                 nn.ReLU(), nn.Flatten(), nn.Linear(16 * 36, 64), nn.ReLU(), nn.Linear(64, 4))

    def forward(self, frames):
        return self.net(frames[:, None].float() / 255)


class Learner:
    def __init__(self, args):
        self.args = args
        self.buffer = RingBuffer(args.capacity, (64, 64))
        log.info("ring of %d transitions, %.0f MiB when full", args.capacity, self.buffer.nbytes() / 2 ** 20)
        self.rng = np.random.default_rng(0)
        self.q, self.target = QNet(), QNet()
        self.target.load_state_dict(self.q.state_dict())
        self.opt = torch.optim.Adam(self.q.parameters(), lr=3e-4)
        self.updates = 0

    def update(self):
        o, a, r, n = self.buffer.sample(self.args.batch_size, self.rng)
        with torch.no_grad():
            goal = torch.from_numpy(r) + 0.97 * self.target(torch.from_numpy(n)).max(1).values
        value = self.q(torch.from_numpy(o)).gather(1, torch.from_numpy(a)[:, None]).squeeze(1)
        loss = nn.functional.smooth_l1_loss(value, goal)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.updates += 1
        if self.updates % 200 == 0:
            self.target.load_state_dict(self.q.state_dict())
        return loss.item()

    def run(self, pipes):
        end = time.monotonic() + self.args.seconds
        told, loss = time.monotonic(), float("nan")
        while time.monotonic() < end:
            for pipe in wait(pipes, timeout=0.05):
                self.buffer.extend(*pipe.recv())
            if len(self.buffer) >= self.args.warmup:
                loss = self.update()
            if time.monotonic() - told > 5:
                told = time.monotonic()
                log.info("updates %d loss %.4f buffer %d of %d", self.updates, loss,
                         len(self.buffer), self.buffer.capacity)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--actors", type=int, default=2)
    ap.add_argument("--capacity", type=int, default=26000)
    ap.add_argument("--rate", type=float, default=320, help="transitions per second and actor")
    ap.add_argument("--warmup", type=int, default=1000)
    ap.add_argument("--batch-size", type=int, default=32)
    ap.add_argument("--seconds", type=float, default=125)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    torch.set_num_threads(1)
    ctx = mp.get_context("spawn")
    pipes, procs = [], []
    for i in range(args.actors):
        mine, theirs = ctx.Pipe(duplex=False)
        p = ctx.Process(target=rollout, args=(i, theirs, args.rate), name=f"actor-{i}", daemon=True)
        p.start()
        theirs.close()
        pipes.append(mine)
        procs.append(p)
    Learner(args).run(pipes)
    for p in procs:
        p.terminate()


if __name__ == "__main__":
    main()
