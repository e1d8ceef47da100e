"""Language-id style classifier trained from tar shards on two ranks."""
import argparse
import itertools
import logging
import os
import socket
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader

import wds


def make_loader(urls, args, shuffle):
    dataset = wds.WebPipeline(
        wds.SimpleShardList(urls, shuffle),
        wds.split_by_node,
        wds.split_by_worker,
        wds.tarfile_to_samples,
        wds.decode,
    ).repeat()
    return DataLoader(dataset, batch_size=args.batch_size, num_workers=args.workers)


class Brain:
    def __init__(self, args, rank):
        self.args = args
        self.rank = rank
        self.log = logging.getLogger("brain")
        self.model = DDP(nn.Sequential(nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 2)))
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.05)

    def fit_epoch(self, loader, epoch):
        start, total = time.time(), 0.0
        for step, (x, y) in enumerate(itertools.islice(loader, self.args.steps_per_epoch)):
            loss = nn.functional.cross_entropy(self.model(x), y)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            time.sleep(self.args.step_time)
            total += loss.item()
            if (step + 1) % 10 == 0:
                self.log.info("epoch %d step %d loss %.4f", epoch, step + 1, total / (step + 1))
        self.log.info("epoch %d trained in %.1fs", epoch, time.time() - start)

    @torch.no_grad()
    def validate(self, loader):
        stats = torch.zeros(2)
        for x, y in itertools.islice(loader, self.args.valid_steps):
            stats += torch.tensor([(self.model.module(x).argmax(1) == y).sum(), len(y)])
        dist.all_reduce(stats)
        return (stats[0] / stats[1]).item()


def run(rank, args, port, train_urls, valid_urls):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(args.world_size))
    torch.set_num_threads(1)
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s rank{rank} %(message)s")
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=args.world_size)
    torch.manual_seed(1)
    brain = Brain(args, rank)
    for epoch in range(args.epochs):
        brain.fit_epoch(make_loader(train_urls, args, True), epoch)
        acc = brain.validate(make_loader(valid_urls, args, False))
        if rank == 0:
            brain.log.info("epoch %d valid accuracy %.4f", epoch, acc)
    dist.destroy_process_group()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--world-size", type=int, default=2)
    p.add_argument("--workers", type=int, default=1)
    p.add_argument("--batch-size", type=int, default=32)
    p.add_argument("--epochs", type=int, default=5)
    p.add_argument("--steps-per-epoch", type=int, default=60)
    p.add_argument("--step-time", type=float, default=0.05)
    p.add_argument("--valid-steps", type=int, default=6)
    args = p.parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="shards_") as folder:
        train_urls = wds.write_shards(folder, "train", 4, 500, seed=0)
        valid_urls = wds.write_shards(folder, "valid", 1, 200, seed=9)
        mp.start_processes(run, args=(args, port, train_urls, valid_urls), nprocs=args.world_size,
                           start_method="fork")


if __name__ == "__main__":
    main()
