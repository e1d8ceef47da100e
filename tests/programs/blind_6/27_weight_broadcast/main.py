"""Learner with a handful of actors on a plant simulator that runs in wall-clock time."""
import argparse
import logging
import multiprocessing as mp
import time

import numpy as np
import torch
from torch import nn

from broadcast import Sender, WeightBoard

log = logging.getLogger("plant")


def build():
    return nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1))


class Plant:
    """One episode of the real plant takes a quarter of a minute."""

    def __init__(self, seed, seconds):
        self.rng, self.seconds = np.random.default_rng(seed), seconds

    @torch.no_grad()
    def episode(self, net):
        state, rows = self.rng.standard_normal(4).astype(np.float32), []
        for _ in range(30):
            action = float(net(torch.from_numpy(state))) + 0.1 * self.rng.standard_normal()
            rows.append(np.append(state, action + 0.5 * state.sum()).astype(np.float32))
            state = (0.9 * state + 0.1 * action + 0.05 * self.rng.standard_normal(4)).astype(np.float32)
            time.sleep(self.seconds / 30)
        return np.stack(rows)


def actor(index, conn, out, seconds):
    torch.set_num_threads(1)
    plant, net = Plant(index, seconds), build()
    while True:
        version, weights = conn.recv()
        net.load_state_dict({k: torch.from_numpy(v) for k, v in weights.items()})
        out.put((index, version, plant.episode(net)))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--actors", type=int, default=3)
    ap.add_argument("--episode-seconds", type=float, default=16)
    ap.add_argument("--iterations", type=int, default=100)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    ctx = mp.get_context("fork")
    out, pipes = ctx.Queue(), [ctx.Pipe() for _ in range(args.actors)]
    for i, (_, theirs) in enumerate(pipes):
        ctx.Process(target=actor, args=(i, theirs, out, args.episode_seconds), name=f"actor-{i}", daemon=True).start()
    board = WeightBoard()
    for i, (ours, _) in enumerate(pipes):
        Sender(board, ours, f"sender-{i}").start()

    net = build()
    opt = torch.optim.Adam(net.parameters(), 1e-2)
    for it in range(args.iterations):
        board.publish({k: v.numpy().copy() for k, v in net.state_dict().items()})
        rows = torch.from_numpy(np.concatenate([out.get()[2] for _ in pipes]))
        for _ in range(20):
            loss = (net(rows[:, :4]).squeeze(1) + 0.5 * rows[:, :4].sum(1)).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        log.info("iteration %d: %d steps, loss %.4f, cost %.3f", it, len(rows), loss.item(), rows[:, 4].pow(2).mean())


if __name__ == "__main__":
    main()
