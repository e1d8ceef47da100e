"""Data parallel pretraining of a small network with a SOAP style optimizer."""
import argparse
import logging
import os
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

from soap import SOAP

log = logging.getLogger("pretrain")


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--minutes", type=float, default=1.5)
    p.add_argument("--width", type=int, default=448)
    p.add_argument("--layers", type=int, default=3)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--precondition-frequency", type=int, default=25)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--log-every", type=int, default=5)
    return p.parse_args()


def make_model(args):
    layers = []
    for _ in range(args.layers):
        layers += [torch.nn.Linear(args.width, args.width), torch.nn.GELU()]
    return torch.nn.Sequential(*layers)


def worker(rank, args, port):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s rank{rank} %(message)s")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", rank=rank, world_size=args.ranks)
    model = DistributedDataParallel(make_model(args))
    opt = SOAP(model.parameters(), lr=args.lr, precondition_frequency=args.precondition_frequency)
    g = torch.Generator().manual_seed(rank)
    end, step = time.monotonic() + 60 * args.minutes, 0
    status = torch.zeros(2)
    slowest, mark = 0.0, time.monotonic()
    while True:
        x = torch.randn(args.batch, args.width, generator=g)
        time.sleep(0.03)
        loss = torch.nn.functional.mse_loss(model(x), x.roll(1, 1))
        opt.zero_grad()
        loss.backward()
        opt.step()
        step += 1
        status[0], status[1] = loss.detach(), float(time.monotonic() > end)
        dist.all_reduce(status)
        now = time.monotonic()
        slowest, mark = max(slowest, now - mark), now
        if step % args.log_every == 0 and rank == 0:
            log.info("step %d loss %.4f, slowest of the last %d steps %.2f s", step, status[0].item() / args.ranks, args.log_every, slowest)
            slowest = 0.0
        if status[1] > 0:
            break
    dist.barrier()
    dist.destroy_process_group()


def main():
    args = parse_args()
    model = make_model(args)
    opt = SOAP(model.parameters(), lr=args.lr, precondition_frequency=args.precondition_frequency)
    print(f"{sum(p.numel() for p in model.parameters())} parameters, basis refreshed every "
          f"{opt.defaults['precondition_frequency']} steps")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.start_processes(worker, args=(args, port), nprocs=args.ranks, start_method="fork")
    print("done")


if __name__ == "__main__":
    main()
