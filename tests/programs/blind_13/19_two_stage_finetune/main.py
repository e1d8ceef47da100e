"""Head first, then the whole network: the second stage starts from the first one's checkpoint."""
import argparse
import logging
import os
import socket
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

from checkpoint import CheckpointManager

log = logging.getLogger("finetune")


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--ranks", type=int, default=3)
    p.add_argument("--head-steps", type=int, default=60)
    p.add_argument("--full-steps", type=int, default=4000)
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--width", type=int, default=1024)
    p.add_argument("--classes", type=int, default=10)
    p.add_argument("--run-dir", default=None)
    return p.parse_args()


class Net(torch.nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        self.body = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.ReLU())
                                          for _ in range(6)])
        self.head = torch.nn.Linear(width, classes)

    def forward(self, x):
        return self.head(self.body(x))


def make_optimizer(params):
    return torch.optim.Adam(params, lr=1e-3)


def run_stage(name, net, params, args, first, last, generator):
    model = DistributedDataParallel(net)
    opt = make_optimizer(params)
    for step in range(first, last):
        x = torch.randn(args.batch, args.width, generator=generator)
        y = x[:, : args.classes].argmax(1)
        loss = torch.nn.functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        time.sleep(0.04)
        if step % 20 == 0 and dist.get_rank() == 0:
            log.info("%s step %d loss %.3f", name, step, loss.item())
    return opt


def worker(rank, args, port):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [rank {rank}] %(levelname)s %(message)s")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", rank=rank, world_size=args.ranks)
    manager = CheckpointManager(args.run_dir)
    generator = torch.Generator().manual_seed(rank)
    net = Net(args.width, args.classes)

    net.body.requires_grad_(False)
    opt = run_stage("head", net, net.head.parameters(), args, 0, args.head_steps, generator)
    manager.save(args.head_steps, net, opt)

    start = manager.load(net)
    log.info("second stage starts at step %d", start)
    net.body.requires_grad_(True)
    opt = run_stage("full", net, net.parameters(), args, start, start + args.full_steps, generator)
    manager.save(start + args.full_steps, net, opt)
    dist.barrier()
    dist.destroy_process_group()


def main():
    args = parse_args()
    opt = make_optimizer(Net(args.width, args.classes).parameters())
    print("optimizer:", type(opt).__name__, "over", sum(p.numel() for g in opt.param_groups for p in g["params"]), "parameters")
    args.run_dir = args.run_dir or tempfile.mkdtemp(prefix="finetune_")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.start_processes(worker, args=(args, port), nprocs=args.ranks, start_method="fork")


if __name__ == "__main__":
    main()
