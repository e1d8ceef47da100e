import argparse
import logging
import os
import socket
import sys
import time
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset

from model import DraftModel
from sampler import MultipackDistributedBatchSampler


class ConversationDataset(Dataset):
    """Tokenised conversations: mostly short turns, a few long documents."""

    def __init__(self, size=8000, vocab=512, seed=3):
        rng = np.random.default_rng(seed)
        short = rng.integers(48, 256, size)
        long = rng.integers(3500, 4097, size)
        self.lengths = np.where(rng.random(size) < 0.016, long, short)
        self.vocab = vocab

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(int(i))
        return torch.randint(0, self.vocab, (int(self.lengths[i]),), generator=g)


def collate(samples):
    bounds, pos = [], 0
    for s in samples:
        bounds.append((pos, pos + len(s)))
        pos += len(s)
    return torch.cat(samples), bounds


def parse_args():
    p = argparse.ArgumentParser("train_draft")
    p.add_argument("--nproc", type=int, default=3)
    p.add_argument("--total-seq-len", type=int, default=4096, help="tokens per rank and step")
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--epochs", type=int, default=50)
    p.add_argument("--log-every", type=int, default=5)
    p.add_argument("--max-seconds", type=float, default=138.0)
    return p.parse_args()


def build(args):
    model = DraftModel()
    return model, torch.optim.AdamW(model.parameters(), lr=args.lr)


class Trainer:
    def __init__(self, rank, args, started):
        self.rank, self.args, self.started = rank, args, started
        self.log = logging.getLogger("draft")
        torch.manual_seed(0)
        self.dataset = ConversationDataset()
        self.sampler = MultipackDistributedBatchSampler(
            self.dataset.lengths, args.total_seq_len, args.nproc, rank)
        self.loader = DataLoader(self.dataset, batch_sampler=self.sampler, collate_fn=collate)
        model, self.opt = build(args)
        self.model = DDP(model)
        self.step = 0

    def out_of_time(self):
        flag = torch.tensor([float(time.time() - self.started > self.args.max_seconds)])
        dist.broadcast(flag, src=0)
        return bool(flag.item())

    def train_epoch(self, epoch):
        self.sampler.set_epoch(epoch)
        if self.rank == 0:
            self.log.info("epoch %d: %d steps, packing efficiency %.1f%%", epoch,
                          len(self.sampler), 100 * self.sampler.efficiency())
        window, tokens_seen = time.time(), 0
        for tokens, bounds in self.loader:
            loss = self.model(tokens, bounds)
            self.opt.zero_grad(set_to_none=True)
            loss.backward()
            self.opt.step()
            self.step += 1
            tokens_seen += len(tokens)
            if self.step % self.args.log_every == 0:
                dt = time.time() - window
                self.log.info("step %d loss %.3f samples %d tokens/s %.0f", self.step,
                              loss.item(), len(bounds), tokens_seen / dt)
                window, tokens_seen = time.time(), 0
            if self.out_of_time():
                return False
        return True


def worker(rank, args, port, started):
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, force=True,
                        format=f"%(asctime)s [{rank}] %(message)s")
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=args.nproc, timeout=timedelta(minutes=10))
    trainer = Trainer(rank, args, started)
    for epoch in range(args.epochs):
        if not trainer.train_epoch(epoch):
            break
    dist.destroy_process_group()


def main():
    args = parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    torch.set_num_threads(1)
    model, opt = build(args)
    print("%d parameters, %s" % (sum(p.numel() for p in model.parameters()), opt), flush=True)
    mp.start_processes(worker, args=(args, port, time.time()), nprocs=args.nproc, start_method="fork")


if __name__ == "__main__":
    main()
