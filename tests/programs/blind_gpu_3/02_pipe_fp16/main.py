"""Two-stage pipeline training in fp16 (one stage per rank)."""
import argparse
import logging
import os
import socket
import threading

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn

from fp16_optim import DynamicGradScaler, FP16Optimizer

log = logging.getLogger("pipe")


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.fc1 = nn.Linear(dim, 2 * dim)
        self.fc2 = nn.Linear(2 * dim, dim)

    def forward(self, x):
        return x + self.fc2(torch.relu(self.fc1(self.norm(x))))


class FirstStage(nn.Module):
    def __init__(self, in_dim, dim, depth):
        super().__init__()
        self.proj = nn.Linear(in_dim, dim)
        self.blocks = nn.ModuleList(Block(dim) for _ in range(depth))

    def forward(self, x):
        x = self.proj(x)
        for b in self.blocks:
            x = b(x)
        return x


class LastStage(nn.Module):
    def __init__(self, dim, classes, depth, readout_gain):
        super().__init__()
        self.blocks = nn.ModuleList(Block(dim) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)
        self.readout_gain = readout_gain
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        for b in self.blocks:
            x = b(x)
        return self.head(self.norm(x) * self.readout_gain)


class PipelineRunner:
    def __init__(self, args, rank, device):
        self.args, self.rank, self.device = args, rank, device
        torch.manual_seed(args.seed + rank)
        if rank == 0:
            stage = FirstStage(args.in_dim, args.dim, args.depth)
        else:
            stage = LastStage(args.dim, args.classes, args.depth, args.readout_gain)
        self.stage = stage.half().to(device)
        scaler = DynamicGradScaler(args.initial_scale, args.growth_interval)
        self.optim = FP16Optimizer(self.stage, args.lr, scaler, args.max_norm)
        self.data_rng = torch.Generator().manual_seed(args.seed)

    def next_batch(self):
        x = torch.randn(self.args.batch, self.args.in_dim, generator=self.data_rng)
        y = torch.randint(0, self.args.classes, (self.args.batch,), generator=self.data_rng)
        return x.half().to(self.device), y.to(self.device)

    def first_stage_step(self, x):
        out = self.stage(x)
        dist.send(out.detach().contiguous(), dst=1)
        grad = torch.empty_like(out)
        dist.recv(grad, src=1)
        out.backward(grad)
        return None

    def last_stage_step(self, y):
        act = torch.empty(self.args.batch, self.args.dim, dtype=torch.half, device=self.device)
        dist.recv(act, src=0)
        act.requires_grad_(True)
        logits = self.stage(act)
        loss = nn.functional.cross_entropy(logits.float(), y)
        self.optim.scale_loss(loss).backward()
        dist.send(act.grad.contiguous(), dst=0)
        return loss.item()

    def run(self):
        for step in range(self.args.steps):
            x, y = self.next_batch()
            loss = self.first_stage_step(x) if self.rank == 0 else self.last_stage_step(y)
            ok, norm = self.optim.step()
            self.optim.zero_grad()
            if not ok:
                log.warning("stage %d step %d overflow, loss scale -> %g", self.rank, step, self.optim.scaler.scale)
            elif step % self.args.log_every == 0 and loss is not None:
                log.info("step %d loss %.4f grad norm %.3f scale %g", step, loss, norm, self.optim.scaler.scale)


def limit_walltime(seconds):
    timer = threading.Timer(seconds, lambda: os._exit(0))
    timer.daemon = True
    timer.start()


def worker(rank, args, port):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    limit_walltime(args.time_limit)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), NCCL_HOSTID=f"node{rank}")
    torch.set_num_threads(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda":
        torch.cuda.set_device(0)
    dist.init_process_group("nccl" if device == "cuda" else "gloo", rank=rank, world_size=2)
    PipelineRunner(args, rank, device).run()
    dist.destroy_process_group()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--in-dim", type=int, default=128)
    p.add_argument("--dim", type=int, default=256)
    p.add_argument("--depth", type=int, default=2)
    p.add_argument("--classes", type=int, default=100)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--readout-gain", type=float, default=4.0)
    p.add_argument("--lr", type=float, default=1e-4)
    p.add_argument("--max-norm", type=float, default=1.0)
    p.add_argument("--initial-scale", type=float, default=2.0 ** 15)
    p.add_argument("--growth-interval", type=int, default=25)
    p.add_argument("--steps", type=int, default=200000)
    p.add_argument("--seed", type=int, default=7)
    p.add_argument("--log-every", type=int, default=10)
    p.add_argument("--time-limit", type=float, default=120)
    args = p.parse_args()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(worker, args=(args, port), nprocs=2)


if __name__ == "__main__":
    main()
