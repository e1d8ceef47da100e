import argparse
import logging
import os
import random
import socket
import sys
import tempfile
import time
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from model import build_model


def get_args():
    p = argparse.ArgumentParser("tube grounding")
    p.add_argument("--nproc", type=int, default=3)
    p.add_argument("--frames", type=int, default=16)
    p.add_argument("--batch-size", type=int, default=16)
    p.add_argument("--lr", type=float, default=5e-4)
    p.add_argument("--seed", type=int, default=42)
    p.add_argument("--eval-skip", type=int, default=2)
    p.add_argument("--max-seconds", type=float, default=132.0)
    p.add_argument("--output-dir", default=None)
    return p.parse_args()


class ClipDataset(Dataset):
    """Features of clips; jitter of the start frame is drawn anew at each access."""

    def __init__(self, size, frames, train, feat=48):
        g = torch.Generator().manual_seed(9 if train else 10)
        mix = torch.randn(feat, 4, generator=torch.Generator().manual_seed(8))
        self.x = torch.randn(size, frames * 2, feat, generator=g)
        self.boxes = torch.sigmoid(self.x @ mix / 4)
        self.active = (torch.rand(size, frames * 2, generator=g) > 0.4).float()
        self.frames, self.train = frames, train

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        a = random.randrange(self.frames) if self.train else 0
        s = slice(a, a + self.frames)
        time.sleep(0.002)
        return self.x[i, s], self.boxes[i, s], self.active[i, s]


def build_optimizer(model, args):
    return torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-4)


def weight_norm(model):
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()]).norm().item()


@torch.no_grad()
def evaluate(model, criterion, loader):
    model.eval()
    total = torch.zeros(2)
    for x, boxes, active in loader:
        total += torch.tensor([criterion(model.module(x), boxes, active).item(), 1.0])
    dist.all_reduce(total)
    model.train()
    return (total[0] / total[1]).item()


def train_one_epoch(model, criterion, loader, opt, log, epoch):
    running, n = 0.0, 0
    for x, boxes, active in loader:
        loss = criterion(model(x), boxes, active)
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        opt.step()
        running += loss.item()
        n += 1
    log.info("epoch %d train loss %.4f (%d batches)", epoch, running / n, n)


def run(rank, args, port, started):
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, force=True,
                        format=f"%(asctime)s rank{rank} %(message)s")
    log = logging.getLogger("tube")
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=args.nproc, timeout=timedelta(minutes=10))

    # fix the seed for reproducibility
    seed = args.seed + dist.get_rank()
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)

    model, criterion = build_model(args)
    log.info("seed %d, |w| %.5f", seed, weight_norm(model))
    model = DistributedDataParallel(model)
    opt = build_optimizer(model, args)

    train_set = ClipDataset(1536, args.frames, train=True)
    val_set = ClipDataset(192, args.frames, train=False)
    sampler = DistributedSampler(train_set, shuffle=True)
    loader = DataLoader(train_set, args.batch_size, sampler=sampler, drop_last=True)
    val_loader = DataLoader(val_set, args.batch_size, sampler=DistributedSampler(val_set, shuffle=False))

    epoch = 0
    while True:
        sampler.set_epoch(epoch)
        train_one_epoch(model, criterion, loader, opt, log, epoch)
        if epoch % args.eval_skip == 0:
            val = evaluate(model, criterion, val_loader)
            if rank == 0:
                log.info("epoch %d val loss %.4f", epoch, val)
                torch.save({"model": model.module.state_dict(), "optimizer": opt.state_dict(),
                            "epoch": epoch}, os.path.join(args.output_dir, "checkpoint.pth"))
        dist.barrier()
        epoch += 1
        stop = torch.tensor([float(time.time() - started > args.max_seconds)])
        dist.broadcast(stop, src=0)
        if stop.item():
            break
    log.info("done after %d epochs, |w| %.5f", epoch, weight_norm(model))
    dist.destroy_process_group()


def main():
    args = get_args()
    if args.output_dir is None:
        args.output_dir = tempfile.mkdtemp(prefix="tube_")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    torch.set_num_threads(1)
    model, _ = build_model(args)
    print(model)
    print(build_optimizer(model, args), flush=True)
    mp.start_processes(run, args=(args, port, time.time()), nprocs=args.nproc, start_method="fork")


if __name__ == "__main__":
    main()
