"""Fine-tune a small language model data-parallel, with a checkpoint every now and then."""
import argparse
import logging
import socket
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler

from data import Prompts
from engine import Engine


class TinyLM(nn.Module):
    def __init__(self, vocab, dim):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.head = nn.Linear(dim, vocab)

    def forward(self, tokens):
        hidden, _ = self.rnn(self.emb(tokens))
        return self.head(hidden)


def train(rank, args, port, save_dir):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [rank {rank}] %(message)s")
    log = logging.getLogger("train")
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank,
                            world_size=args.world_size)
    engine = Engine(TinyLM(args.vocab, args.dim), args.lr, args.accumulate)
    dataset = Prompts(args.examples, args.length, args.vocab)
    sampler = DistributedSampler(dataset, args.world_size, rank, seed=args.seed)
    loader = DataLoader(dataset, args.batch_size, sampler=sampler, drop_last=True)
    loss_fn = nn.CrossEntropyLoss()
    t0 = time.time()
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for tokens, targets in loader:
            logits = engine(tokens)
            loss = loss_fn(logits.flatten(0, 1), targets.flatten())
            engine.backward(loss)
            engine.step()
            if engine.micro_steps % args.accumulate:
                continue
            step = engine.global_steps
            if step % args.log_interval == 0 and rank == 0:
                log.info("epoch %d step %d loss %.4f (%.1f s)", epoch, step, loss.item(), time.time() - t0)
            if step % args.save_interval == 0 and rank == 0:
                log.info("saving step %d", step)
                engine.save_checkpoint(save_dir, f"global_step{step}")
                log.info("saved step %d", step)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--world-size", type=int, default=3)
    p.add_argument("--epochs", type=int, default=50)
    p.add_argument("--examples", type=int, default=12000)
    p.add_argument("--length", type=int, default=32)
    p.add_argument("--vocab", type=int, default=256)
    p.add_argument("--dim", type=int, default=96)
    p.add_argument("--batch-size", type=int, default=16)
    p.add_argument("--accumulate", type=int, default=2)
    p.add_argument("--lr", type=float, default=0.3)
    p.add_argument("--log-interval", type=int, default=10)
    p.add_argument("--save-interval", type=int, default=80)
    p.add_argument("--save-dir", default=None)
    p.add_argument("--seed", type=int, default=42)
    args = p.parse_args()
    save_dir = args.save_dir or tempfile.mkdtemp(prefix="finetune_")
    mp.start_processes(train, args=(args, free_port(), save_dir), nprocs=args.world_size,
                       start_method="fork")


if __name__ == "__main__":
    main()
