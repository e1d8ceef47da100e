import argparse
import logging
import os
import socket
import tempfile
import time
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from dataloader import get_loaders
from volume import Volume


def parse_args():
    p = argparse.ArgumentParser(description="imagenet training with rectangular validation")
    p.add_argument("--world-size", type=int, default=2)
    p.add_argument("--images", type=int, default=2800)
    p.add_argument("--batch-size", type=int, default=32)
    p.add_argument("--epochs", type=int, default=14)
    p.add_argument("--lr", type=float, default=0.05)
    p.add_argument("--step-time", type=float, default=0.05, help="pace of a training step in seconds")
    return p.parse_args()


def reduce_mean(value):
    t = torch.tensor([value])
    dist.all_reduce(t)
    return t.item() / dist.get_world_size()


def main_worker(rank, port, root, args):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [{rank}] %(name)s %(message)s")
    log = logging.getLogger("train")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", rank=rank, world_size=args.world_size, timeout=timedelta(minutes=20))
    train_loader, val_loader = get_loaders(Volume(root), root, rank, args.world_size, args.batch_size)
    model = DistributedDataParallel(nn.Sequential(
        nn.Conv2d(3, 16, 3, 2), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 25, 10)))
    optim = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    for epoch in range(args.epochs):
        model.train()
        for images, labels in train_loader:
            begin = time.time()
            loss = nn.functional.cross_entropy(model(images), labels)
            optim.zero_grad()
            loss.backward()
            optim.step()
            time.sleep(max(0.0, args.step_time - (time.time() - begin)))
        model.eval()
        with torch.no_grad():
            correct = sum((model.module(x).argmax(1) == y).sum().item() for x, y in val_loader)
        top1 = reduce_mean(100.0 * correct / len(val_loader.dataset))
        if rank == 0:
            log.info("epoch %d loss %.3f top1 %.2f", epoch, loss.item(), top1)
    dist.barrier()
    dist.destroy_process_group()


def main():
    args = parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="imagenet_") as root:
        Volume(root).populate(args.images)
        mp.spawn(main_worker, args=(port, root, args), nprocs=args.world_size)
    print("finished")


if __name__ == "__main__":
    main()
