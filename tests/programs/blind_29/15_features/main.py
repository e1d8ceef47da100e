import argparse
import logging
import multiprocessing as mp
import os
import tempfile
import time

import numpy as np
import torch
from torch import nn

from client import FeatureClient
from server import run_server
from shards import ROWS, WIDTH, write_shards

log = logging.getLogger("train")


class Ranker(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.user, self.item = nn.Linear(WIDTH, hidden), nn.Linear(WIDTH, hidden)
        self.out = nn.Sequential(nn.ReLU(), nn.Linear(hidden, 1))

    def forward(self, user, item):
        return self.out(self.user(user) * self.item(item)).squeeze(-1)


def train(rank, args, ports):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    rng = np.random.default_rng(args.seed + rank)
    model = Ranker()
    weights = [p for p in model.parameters()]
    clients = {name: FeatureClient(name, port) for name, port in ports.items()}
    epoch = 0
    while True:
        epoch += 1
        for client in clients.values():
            client.connect()
        began, losses = time.monotonic(), []
        for _ in range(args.steps_per_epoch):
            users = rng.integers(0, args.user_shards * ROWS, args.batch_size)
            items = rng.integers(0, args.item_shards * ROWS, args.batch_size)
            u, i = clients["users"].lookup(users), clients["items"].lookup(items)
            clicks = ((u[:, :4] * torch.from_numpy(np.cos(items % 97)).float()[:, None]).sum(1) > 0).float()
            loss = nn.functional.binary_cross_entropy_with_logits(model(u, i), clicks)
            grads = torch.autograd.grad(loss, weights)
            with torch.no_grad():
                for w, g in zip(weights, grads):
                    w -= args.lr * g
            losses.append(loss.item())
            time.sleep(args.step_pause)
        log.info("epoch %d: loss %.4f in %.1f s (%s)", epoch, sum(losses) / len(losses), time.monotonic() - began,
                 ", ".join(f"{c.name} missed {c.missed}" for c in clients.values()))


def parse_args():
    p = argparse.ArgumentParser(description="train a ranker on features served from shards")
    p.add_argument("--trainers", type=int, default=2)
    p.add_argument("--user-shards", type=int, default=200)
    p.add_argument("--item-shards", type=int, default=3000)
    p.add_argument("--batch-size", type=int, default=8)
    p.add_argument("--steps-per-epoch", type=int, default=60)
    p.add_argument("--step-pause", type=float, default=0.04, help="stands for the dense part of the step")
    p.add_argument("--lr", type=float, default=0.05)
    p.add_argument("--seed", type=int, default=0)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    with tempfile.TemporaryDirectory(prefix="features-") as root:
        for name, count in (("users", args.user_shards), ("items", args.item_shards)):
            write_shards(os.path.join(root, name), count, args.seed)
        queue = mp.Queue()
        for name in ("users", "items"):
            mp.Process(target=run_server, args=(name, os.path.join(root, name), queue), name=f"server-{name}",
                       daemon=True).start()
        ports = dict(queue.get() for _ in range(2))
        trainers = [mp.Process(target=train, args=(r, args, ports), name=f"trainer-{r}", daemon=True)
                    for r in range(args.trainers)]
        for proc in trainers:
            proc.start()
        for proc in trainers:
            proc.join()


if __name__ == "__main__":
    main()
