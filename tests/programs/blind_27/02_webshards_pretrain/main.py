"""Pretrain a small language model on sharded documents."""
import argparse
import logging
import os
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F

from corpus import VOCAB, HeldOutDocuments, build_train_pipe
from data_loader import prepare_data_loader

logger = logging.getLogger("pretrain")


class TinyLM(nn.Module):
    def __init__(self, dim=128):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, VOCAB)

    def forward(self, tokens):
        logits = self.out(self.rnn(self.embed(tokens[:, :-1]))[0])
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


class Trainer:
    def __init__(self, args, rank):
        self.args, self.rank, self.world_size = args, rank, args.num_processes
        torch.manual_seed(args.seed)
        self.model = TinyLM()
        for p in self.model.parameters():
            dist.broadcast(p.data, src=0)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=args.lr)
        self.eval_loader = prepare_data_loader(HeldOutDocuments(), args.batch_size, rank, self.world_size)
        self.train_loader = prepare_data_loader(build_train_pipe(args.num_shards), args.batch_size, rank, self.world_size)

    def _sync_gradients(self):
        flat = torch.cat([p.grad.flatten() for p in self.model.parameters()])
        dist.all_reduce(flat)
        flat /= self.world_size
        offset = 0
        for p in self.model.parameters():
            p.grad.copy_(flat[offset:offset + p.numel()].view_as(p))
            offset += p.numel()

    @torch.no_grad()
    def evaluate(self):
        total = torch.zeros(2)
        for tokens in self.eval_loader:
            total += torch.tensor([self.model(tokens).item(), 1.0])
        dist.all_reduce(total)
        return (total[0] / total[1]).item()

    def train(self):
        logger.info("rank %d: initial eval loss %.4f", self.rank, self.evaluate())
        step = 0
        for epoch in range(self.args.epochs):
            logger.info("rank %d: epoch %d starts", self.rank, epoch)
            tic = time.time()
            for tokens in self.train_loader:
                loss = self.model(tokens)
                self.optimizer.zero_grad()
                loss.backward()
                self._sync_gradients()
                self.optimizer.step()
                step += 1
                if self.rank == 0 and step % 20 == 0:
                    logger.info("step %d loss %.4f (%.2f s)", step, loss.item(), time.time() - tic)
                    tic = time.time()
            logger.info("rank %d: epoch %d eval loss %.4f", self.rank, epoch, self.evaluate())


def run(rank, args, port):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s [%(process)d] %(message)s")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=args.num_processes)
    Trainer(args, rank).train()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--num-processes", type=int, default=3)
    parser.add_argument("--num-shards", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=42)
    args = parser.parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.start_processes(run, args=(args, port), nprocs=args.num_processes, start_method="fork")


if __name__ == "__main__":
    main()
