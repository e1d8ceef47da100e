"""Local SGD on three ranks: each trains on its own shard and the models are averaged now and then."""
import argparse
import logging
import os
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn

from averager import PeriodicModelAverager

log = logging.getLogger("localsgd")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def shard(rank, size=4096):
    gen = torch.Generator().manual_seed(rank)
    x = torch.randn(size, 64, generator=gen)
    teacher = torch.randn(64, 10, generator=torch.Generator().manual_seed(999))
    return x, (x @ teacher + 0.5 * torch.randn(size, 10, generator=gen)).argmax(dim=1)


def worker(rank, args, port):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s rank{rank} %(message)s")
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", rank=rank, world_size=args.world_size)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    params = list(model.parameters())
    averager = PeriodicModelAverager(args.period, args.warmup_steps)
    x, y = shard(rank)
    started, round_start, step, losses = time.monotonic(), time.monotonic(), 0, []
    going = torch.ones(1)
    while going.item():
        idx = torch.randint(0, len(x), (256,))
        loss = nn.functional.cross_entropy(model(x[idx]), y[idx])
        model.zero_grad()
        loss.backward()
        averager.after_backward(params)
        with torch.no_grad():
            for p in params:
                p -= args.lr * p.grad
        losses.append(loss.item())
        time.sleep(args.io_time)
        step += 1
        if averager.after_step(params):
            log.info("step %d averaged, local loss %.4f, round %.1f s", step, sum(losses) / len(losses),
                     time.monotonic() - round_start)
            losses, round_start = [], time.monotonic()
            going[0] = float(time.monotonic() - started < args.duration)
            dist.broadcast(going, src=0)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--world-size", type=int, default=3)
    parser.add_argument("--period", type=int, default=140)
    parser.add_argument("--warmup-steps", type=int, default=40)
    parser.add_argument("--io-time", type=float, default=0.05)
    parser.add_argument("--duration", type=float, default=92)
    parser.add_argument("--lr", type=float, default=0.05)
    args = parser.parse_args()
    mp.start_processes(worker, args=(args, free_port()), nprocs=args.world_size, start_method="fork")


if __name__ == "__main__":
    main()
