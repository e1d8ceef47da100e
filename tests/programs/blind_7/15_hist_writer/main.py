"""Evolution strategy on a balancing task with parallel environments and histograms."""
import argparse
import logging
import time
from pathlib import Path

import torch

from envs import start_envs
from metrics import EventWriter

log = logging.getLogger("es")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--envs", type=int, default=3)
    p.add_argument("--population", type=int, default=6, help="candidates per environment process")
    p.add_argument("--episodes", type=int, default=2)
    p.add_argument("--horizon", type=int, default=400)
    p.add_argument("--sigma", type=float, default=0.8)
    p.add_argument("--lr", type=float, default=0.6)
    p.add_argument("--iterations", type=int, default=5000)
    p.add_argument("--out", type=Path, default=Path("runs/events.jsonl"))
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(4)

    conns, _ = start_envs(args.envs, args.episodes, args.horizon)
    writer = EventWriter(args.out)
    theta = torch.tensor([3.0, 0.0, 0.0, 0.0])
    t0 = time.time()
    for it in range(args.iterations):
        noise = torch.randn(args.envs, args.population, 4)
        for conn, eps in zip(conns, noise):
            conn.send((theta + args.sigma * eps).numpy())
        results = [conn.recv() for conn in conns]
        returns = torch.tensor([[r for _, r in res] for res in results])
        fitness = returns.view(args.envs, args.population, args.episodes).mean(-1)
        advantage = (fitness - fitness.mean()) / fitness.std()
        grad = (advantage[..., None] * noise).mean((0, 1)) / args.sigma
        theta = theta + args.lr * torch.nan_to_num(grad)

        writer.add_scalar("return/mean", returns.mean(), it)
        writer.add_histogram("return/advantage", advantage.numpy(), it)
        writer.add_histogram("policy/theta", theta.numpy(), it)
        if it % 5 == 0:
            log.info("iteration %d return %.1f theta %s (%.1f s)", it, returns.mean(),
                     [round(v, 2) for v in theta.tolist()], time.time() - t0)
    for conn in conns:
        conn.send(None)
    writer.close()


if __name__ == "__main__":
    main()
