import argparse
import logging
import os
import socket
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from checkpoint import ShardedUploader

log = logging.getLogger("pretrain")


def parse_args():
    p = argparse.ArgumentParser(description="Train adapters on a frozen backbone")
    p.add_argument("--world-size", type=int, default=2)
    p.add_argument("--device", default="cuda:0")
    p.add_argument("--backend", default="nccl")
    p.add_argument("--budget", type=float, default=98.0, help="seconds of training")
    p.add_argument("--save-every", type=float, default=26.0, help="seconds between checkpoints")
    p.add_argument("--read-time", type=float, default=0.12)
    p.add_argument("--checkpoint-dir", default="checkpoints")
    return p.parse_args()


class AdapterModel(nn.Module):
    def __init__(self, vocab=48000, dim=512, adapter=64):
        super().__init__()
        self.backbone = nn.Embedding(vocab, dim)
        self.backbone.weight.requires_grad_(False)
        self.down = nn.Linear(dim, adapter)
        self.up = nn.Linear(adapter, 128)

    def forward(self, tokens):
        return self.up(torch.nn.functional.gelu(self.down(self.backbone(tokens).mean(dim=1))))


class Clock:
    """All ranks follow rank 0's clock."""

    def __init__(self, args, device):
        self.args, self.device = args, device
        self.started = self.saved = time.time()

    def agree(self):
        now = time.time()
        flags = torch.tensor(
            [float(now - self.saved > self.args.save_every), float(now - self.started > self.args.budget)],
            device=self.device,
        )
        dist.broadcast(flags, src=0)
        save, stop = flags.tolist()
        return bool(save), bool(stop)


def save_checkpoint(model, optimizer, uploader, step, rank):
    if rank == 0:
        state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        uploader.save(state, step)
    dist.barrier()


def train(rank, args):
    device = torch.device(args.device)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    torch.manual_seed(0)
    model = DistributedDataParallel(AdapterModel().to(device))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    uploader = ShardedUploader(args.checkpoint_dir)
    gen = torch.Generator().manual_seed(rank)
    clock, step, stop = Clock(args, device), 0, False
    while not stop:
        time.sleep(args.read_time)
        tokens = torch.randint(48000, (32, 64), generator=gen).to(device)
        target = torch.randint(128, (32,), generator=gen).to(device)
        loss = nn.functional.cross_entropy(model(tokens), target)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        step += 1
        if step % 25 == 0:
            log.info("step %d loss %.4f", step, loss.item())
        save, stop = clock.agree()
        if save:
            save_checkpoint(model, optimizer, uploader, step, rank)
            clock.saved = time.time()
    log.info("finished after %d steps", step)


def worker(rank, args, port):
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = str(port)
    os.environ["NCCL_SOCKET_IFNAME"] = "lo"
    os.environ["NCCL_HOSTID"] = f"host{rank}"
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format=f"%(asctime)s {rank} %(name)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group(args.backend, rank=rank, world_size=args.world_size)
    train(rank, args)
    dist.destroy_process_group()


if __name__ == "__main__":
    args = parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(worker, args=(args, port), nprocs=args.world_size)
