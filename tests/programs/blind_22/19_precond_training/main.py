"""Data parallel training with a whitening preconditioner that is refreshed now and then."""
import argparse
import logging
import os
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn import functional as F

from precond import InputWhitener

log = logging.getLogger("train")


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--world-size", type=int, default=3)
    parser.add_argument("--width", type=int, default=1280)
    parser.add_argument("--depth", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=24)
    parser.add_argument("--steps-per-cycle", type=int, default=3)
    parser.add_argument("--collect-steps", type=int, default=2)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--max-seconds", type=float, default=115.0)
    return parser.parse_args()


def build(args):
    torch.manual_seed(0)
    layers = [nn.Linear(args.width, args.width), nn.ReLU()]
    for _ in range(args.depth - 2):
        layers += [nn.Linear(args.width, args.width), nn.ReLU()]
    layers.append(nn.Linear(args.width, 10))
    return nn.Sequential(*layers)


class Blobs:
    def __init__(self, dim, seed):
        self.centers = torch.randn(10, dim, generator=torch.Generator().manual_seed(5))
        self.gen = torch.Generator().manual_seed(seed)

    def batch(self, n):
        y = torch.randint(0, 10, (n,), generator=self.gen)
        noise = torch.randn(n, self.centers.shape[1], generator=self.gen)
        return 0.1 * self.centers[y] + noise, y


def average_gradients(model, world):
    flat = torch.cat([p.grad.reshape(-1) for p in model.parameters()])
    dist.all_reduce(flat)
    flat /= world
    offset = 0
    for p in model.parameters():
        p.grad.copy_(flat[offset:offset + p.numel()].view_as(p))
        offset += p.numel()


def run(rank, args, port):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s rank{rank} %(name)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank,
                            world_size=args.world_size)
    model = build(args)
    whitener = InputWhitener(model, [args.width] * args.depth)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    data = Blobs(args.width, seed=30 + rank)
    deadline = time.time() + args.max_seconds
    late = torch.zeros(1)
    cycle = 0
    while not late.item():
        started = time.time()
        for step in range(args.steps_per_cycle):
            whitener.collecting = step < args.collect_steps
            x, y = data.batch(args.batch_size)
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            average_gradients(model, args.world_size)
            whitener.apply()
            optimizer.step()
        whitener.collecting = False
        if rank == 0:
            log.info("cycle %d loss %.4f, %d steps in %.1f s", cycle, loss.item(), args.steps_per_cycle,
                     time.time() - started)
        whitener.refresh()
        late[0] = float(time.time() > deadline)
        dist.all_reduce(late, op=dist.ReduceOp.MAX)
        cycle += 1
    dist.destroy_process_group()


def main():
    args = parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(run, args=(args, port), nprocs=args.world_size, join=True)


if __name__ == "__main__":
    main()
