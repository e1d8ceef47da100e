"""Data-parallel training of a small U-Net on the CPU."""
import argparse
import logging
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler

from data import Discs
from model import SmallUNet


def average_gradients(model, world_size):
    grads = [p.grad for p in model.parameters()]
    flat = torch.cat([g.reshape(-1) for g in grads])
    dist.all_reduce(flat)
    flat /= world_size
    offset = 0
    for g in grads:
        g.copy_(flat[offset:offset + g.numel()].view_as(g))
        offset += g.numel()


def train(rank, args, port):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [rank {rank}] %(message)s")
    log = logging.getLogger("train")
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank,
                            world_size=args.world_size)
    model = SmallUNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    dataset = Discs(args.pictures, args.size, args.latency)
    sampler = DistributedSampler(dataset, args.world_size, rank)
    loader = DataLoader(dataset, args.batch_size, sampler=sampler, drop_last=True)
    step, t0 = 0, time.time()
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        model.train()
        for image, mask in loader:
            loss = nn.functional.cross_entropy(model(image), mask)
            optimizer.zero_grad()
            loss.backward()
            average_gradients(model, args.world_size)
            optimizer.step()
            step += 1
            if step % args.log_every == 0 and rank == 0:
                log.info("epoch %d step %d loss %.4f (%.1f s)", epoch, step, loss.item(), time.time() - t0)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--world-size", type=int, default=2)
    p.add_argument("--epochs", type=int, default=1000)
    p.add_argument("--pictures", type=int, default=1024)
    p.add_argument("--size", type=int, default=32)
    p.add_argument("--batch-size", type=int, default=4)
    p.add_argument("--latency", type=float, default=0.025)
    p.add_argument("--lr", type=float, default=0.02)
    p.add_argument("--log-every", type=int, default=50)
    p.add_argument("--seed", type=int, default=0)
    args = p.parse_args()
    mp.start_processes(train, args=(args, free_port()), nprocs=args.world_size, start_method="fork")


if __name__ == "__main__":
    main()
