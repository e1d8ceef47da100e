"""Fine-tune a classifier with DDP; a callback saves checkpoints and keeps only the newest ones."""
import argparse
import logging
import os
import socket
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from checkpoint_saver import CheckpointSaver
from checkpoint_utils import get_latest_checkpoint_path, load_checkpoint

log = logging.getLogger("finetune")


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--nproc", type=int, default=3)
    p.add_argument("--epochs", type=int, default=40)
    p.add_argument("--steps-per-epoch", type=int, default=60)
    p.add_argument("--save-every", type=int, default=30)
    p.add_argument("--keep-last", type=int, default=3)
    p.add_argument("--batch-size", type=int, default=32)
    p.add_argument("--dirpath", default=None)
    return p.parse_args()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Classifier(nn.Module):
    def __init__(self, dim=128, classes=20):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim, 256), nn.GELU(), nn.Linear(256, 256),
                                 nn.GELU(), nn.Linear(256, classes))

    def forward(self, x):
        return self.net(x)


def train_epoch(epoch, model, opt, saver, args, gen, rank, step):
    for _ in range(args.steps_per_epoch):
        x = torch.randn(args.batch_size, 128, generator=gen)
        y = (x[:, :20].argmax(1))
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        time.sleep(0.03)
        step += 1
        saver.on_train_step_end(model.module, opt, epoch, step)
    if rank == 0:
        log.info("epoch %d step %d loss %.4f", epoch, step, loss.item())
    return step


def worker(rank, args, port):
    logging.basicConfig(level=logging.INFO,
                        format="%(asctime)s [rank " + str(rank) + "] %(name)s: %(message)s")
    torch.set_num_threads(1)
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    dist.init_process_group("gloo", rank=rank, world_size=args.nproc)
    torch.manual_seed(0)
    model = Classifier()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    latest = get_latest_checkpoint_path(args.dirpath)
    step = load_checkpoint(latest, model, opt) if latest else 0
    model = DDP(model)
    gen = torch.Generator().manual_seed(rank)
    saver = CheckpointSaver(args.dirpath, args.save_every, args.keep_last)
    for epoch in range(args.epochs):
        step = train_epoch(epoch, model, opt, saver, args, gen, rank, step)
    dist.destroy_process_group()


def main():
    args = parse_args()
    args.dirpath = args.dirpath or tempfile.mkdtemp(prefix="finetune_")
    mp.spawn(worker, args=(args, free_port()), nprocs=args.nproc)


if __name__ == "__main__":
    main()
