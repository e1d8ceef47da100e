"""Train a small predictive coding network on patches, data parallel over processes."""
import argparse
import logging
import os
import socket
import sys
import tempfile
import time

import torch._dynamo  # before the fork: once instead of once per rank
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP

from data import PatchStream
from pcnet import PCNet

log = logging.getLogger("pc")


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--world-size", type=int, default=3)
    p.add_argument("--patch", type=int, default=12)
    p.add_argument("--hidden", type=int, nargs="+", default=[128, 64])
    p.add_argument("--batch-size", type=int, default=64)
    p.add_argument("--infer-steps", type=int, default=6)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--lateral-lr", type=float, default=5e-3)
    p.add_argument("--log-every", type=int, default=20)
    p.add_argument("--save-every", type=int, default=200)
    p.add_argument("--step-pause", type=float, default=0.12, help="camera frame interval of the stream")
    p.add_argument("--train-seconds", type=float, default=125.0)
    p.add_argument("--seed", type=int, default=3)
    return p.parse_args()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Trainer:
    def __init__(self, rank, args, folder):
        self.rank = rank
        self.args = args
        self.folder = folder
        torch.manual_seed(args.seed)
        net = PCNet(args.patch ** 2, args.hidden, args.infer_steps, args.lateral_lr)
        self.net = DDP(net)
        self.optimizer = torch.optim.Adam([p for p in net.parameters() if p.requires_grad], lr=args.lr)
        self.stream = PatchStream(args.patch, args.batch_size, seed=args.seed, part=rank, parts=args.world_size)

    def step(self, batch):
        self.optimizer.zero_grad(set_to_none=True)
        energy = self.net(batch)
        energy.backward()
        self.optimizer.step()
        return energy.detach()

    def save(self, step):
        if self.rank == 0:
            torch.save(self.net.module.state_dict(), os.path.join(self.folder, f"pc_{step:06d}.pt"))

    def report(self, step, energy, rate):
        mean = energy.clone()
        dist.all_reduce(mean)
        mean /= self.args.world_size
        norms = " ".join(f"{layer.lateral.norm().item():.4f}" for layer in self.net.module.layers)
        log.info("step %d energy %.4f (all ranks %.4f) |lateral| %s, %.1f steps/s",
                 step, energy.item(), mean.item(), norms, rate)

    def fit(self):
        started = time.monotonic()
        step = 0
        over = torch.zeros(1)
        while True:
            step += 1
            energy = self.step(self.stream.next())
            if step % self.args.log_every == 0:
                self.report(step, energy, step / (time.monotonic() - started))
                over.fill_(float(time.monotonic() - started > self.args.train_seconds))
                dist.all_reduce(over, op=dist.ReduceOp.MAX)
                if over.item():
                    break
            if step % self.args.save_every == 0:
                self.save(step)
            time.sleep(self.args.step_pause)
        self.save(step)


def worker(rank, args, port, folder):
    logging.basicConfig(level=logging.INFO, stream=sys.stdout,
                        format=f"%(asctime)s rank{rank} %(levelname)s %(message)s")
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=args.world_size)
    try:
        Trainer(rank, args, folder).fit()
    finally:
        dist.destroy_process_group()


def main():
    args = parse_args()
    with tempfile.TemporaryDirectory(prefix="pcnet_") as folder:
        mp.start_processes(worker, args=(args, free_port(), folder), nprocs=args.world_size, start_method="fork")


if __name__ == "__main__":
    main()
