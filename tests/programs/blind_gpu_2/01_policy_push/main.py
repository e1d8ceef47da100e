"""Decoupled PPO: two data parallel trainers, each feeding one rollout rank."""
import argparse
import logging
import os
import socket
import threading

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP

from policy import PolicyNet
from weight_sync import ParamSyncer

device = "cuda" if torch.cuda.is_available() else "cpu"
backend = "nccl" if device == "cuda" else "gloo"


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--trainers", type=int, default=2)
    p.add_argument("--rollouts", type=int, default=2)
    p.add_argument("--updates-per-version", type=int, default=40)
    p.add_argument("--batch-size", type=int, default=128)
    p.add_argument("--rollout-batches", type=int, default=80)
    p.add_argument("--lr", type=float, default=3e-4)
    p.add_argument("--walltime", type=float, default=125.0)
    return p.parse_args()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def limit_walltime(seconds):
    timer = threading.Timer(seconds, lambda: os._exit(0))
    timer.daemon = True
    timer.start()


class Trainer:
    def __init__(self, args, rank, group, sync_group):
        self.args, self.rank = args, rank
        self.net = PolicyNet().to(device)
        self.net.encoder.requires_grad_(False)
        self.ddp = DDP(self.net, process_group=group)
        self.opt = torch.optim.AdamW((p for p in self.net.parameters() if p.requires_grad), lr=args.lr)
        self.syncer = ParamSyncer(self.net, sync_group)

    def update(self):
        obs = torch.randn(self.args.batch_size, 64, device=device)
        logits, value = self.ddp(obs)
        dist_ = torch.distributions.Categorical(logits=logits)
        action = dist_.sample()
        adv = torch.randn(self.args.batch_size, device=device)
        loss = -(dist_.log_prob(action) * adv).mean() + 0.5 * value.pow(2).mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss

    def run(self):
        dst = self.rank + self.args.trainers
        iteration = 0
        while True:
            for _ in range(self.args.updates_per_version):
                loss = self.update()
            iteration += 1
            logging.info("trainer %d iteration %d loss %.4f", self.rank, iteration, loss.item())
            self.syncer.push(dst)


class Rollout:
    def __init__(self, args, rank, sync_group):
        self.args, self.rank = args, rank
        self.net = PolicyNet().to(device).eval()
        self.syncer = ParamSyncer(self.net, sync_group)

    @torch.no_grad()
    def generate(self):
        returns = 0.0
        obs = torch.randn(256, 64, device=device)
        for _ in range(self.args.rollout_batches):
            logits, value = self.net(obs)
            action = logits.argmax(-1, keepdim=True)
            obs = 0.9 * obs + 0.1 * torch.tanh(action.float())
            returns += value.mean().item()
        return returns / self.args.rollout_batches

    def run(self):
        src = self.rank - self.args.trainers
        while True:
            mean_value = self.generate()
            logging.info("rollout %d finished, mean value %.4f", self.rank, mean_value)
            self.syncer.pull(src)


def worker(rank, args, port):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [r{rank}] %(message)s")
    limit_walltime(args.walltime)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), NCCL_HOSTID=f"node{rank}")
    world = args.trainers + args.rollouts
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    if device == "cuda":
        torch.cuda.set_device(0)
    dist.init_process_group(backend, rank=rank, world_size=world)
    train_group = dist.new_group(list(range(args.trainers)))
    sync_group = dist.new_group(backend="gloo")
    if rank < args.trainers:
        Trainer(args, rank, train_group, sync_group).run()
    else:
        Rollout(args, rank, sync_group).run()


if __name__ == "__main__":
    args = parse_args()
    mp.spawn(worker, args=(args, free_port()), nprocs=args.trainers + args.rollouts)
