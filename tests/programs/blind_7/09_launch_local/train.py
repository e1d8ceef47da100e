"""Averages gradients by hand over the ranks; every rank reports its own gradient norms."""
import argparse
import logging
import os

import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("train")


def make_model(width, depth):
    layers = [nn.Linear(32, width), nn.GELU()]
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.LayerNorm(width), nn.GELU()]
    return nn.Sequential(*layers, nn.Linear(width, 4))


def average_gradients(model, world_size):
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= world_size


@torch.no_grad()
def apply_gradients(model, lr):
    for p in model.parameters():
        p -= lr * p.grad
        p.grad = None


def grad_report(model):
    """Gradient and weight norm of every tensor."""
    return " ".join(f"{n}={p.grad.norm().item():.2e}/{p.norm().item():.2e}" for n, p in model.named_parameters())


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--width", type=int, default=128)
    p.add_argument("--depth", type=int, default=6)
    p.add_argument("--batch-size", type=int, default=64)
    p.add_argument("--lr", type=float, default=0.05)
    p.add_argument("--steps", type=int, default=5000)
    args = p.parse_args()
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [rank {rank}] %(message)s")
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = make_model(args.width, args.depth)
    gen = torch.Generator().manual_seed(rank)
    for step in range(args.steps):
        x = torch.randn(args.batch_size, 32, generator=gen)
        y = (x[:, 0] > 0).long() + 2 * (x[:, 1] > 0).long()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        log.info("step %d loss %.3f %s", step, loss.item(), grad_report(model))
        average_gradients(model, world)
        apply_gradients(model, args.lr)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
