"""Small character LM, data parallel, Adam moments spread over the ranks."""
import argparse
import logging
import os
import socket
import threading
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F

from optim import ShardedAdam

TEXT = ("the quick brown fox jumps over the lazy dog while seven wizards quietly "
        "box with jovial knights and pack my box with five dozen liquor jugs ") * 400


def parse_args():
    ap = argparse.ArgumentParser()
    ap.add_argument("--world-size", type=int, default=4)
    ap.add_argument("--steps", type=int, default=4000)
    ap.add_argument("--batch-size", type=int, default=16)
    ap.add_argument("--seq-len", type=int, default=48)
    ap.add_argument("--width", type=int, default=64)
    ap.add_argument("--layers", type=int, default=2)
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--warm-batches", type=int, default=8)
    ap.add_argument("--time-limit", type=float, default=135.0, help="seconds, as in the queue's sbatch header")
    return ap.parse_args()


class Corpus:
    def __init__(self, seq_len, seed):
        chars = sorted(set(TEXT))
        self.vocab = len(chars)
        index = {c: i for i, c in enumerate(chars)}
        self.data = torch.tensor([index[c] for c in TEXT])
        self.seq_len = seq_len
        self.gen = torch.Generator().manual_seed(seed)

    def batch(self, n):
        starts = torch.randint(0, len(self.data) - self.seq_len - 1, (n,), generator=self.gen)
        x = torch.stack([self.data[s:s + self.seq_len] for s in starts])
        y = torch.stack([self.data[s + 1:s + self.seq_len + 1] for s in starts])
        return x, y


class CharLM(nn.Module):
    def __init__(self, vocab, width, layers, seq_len):
        super().__init__()
        self.tok = nn.Embedding(vocab, width)
        self.pos = nn.Parameter(torch.randn(seq_len, width) * 0.02)
        block = nn.TransformerEncoderLayer(width, 4, width * 2, dropout=0.0, batch_first=True)
        self.blocks = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, vocab)
        self.register_buffer("mask", torch.triu(torch.full((seq_len, seq_len), float("-inf")), 1),
                             persistent=False)

    def forward(self, x):
        return self.head(self.blocks(self.tok(x) + self.pos, mask=self.mask))


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wall_clock_limit(seconds):
    def stop():
        time.sleep(seconds)
        logging.getLogger("limit").info("time limit reached")
        os._exit(0)
    threading.Thread(target=stop, daemon=True).start()


def calibrate(model, corpus, args, log):
    """Mean loss of the untouched model over a few batches; the same on all ranks in the limit."""
    with torch.no_grad():
        total = torch.zeros(1)
        for _ in range(args.warm_batches):
            x, y = corpus.batch(args.batch_size)
            total += F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        dist.all_reduce(total)
    log.info("initial loss %.3f", total.item() / args.warm_batches / dist.get_world_size())


def run(rank, args, port):
    logging.basicConfig(level=logging.INFO,
                        format=f"%(asctime)s [rank {rank}] %(name)s: %(message)s")
    log = logging.getLogger("train")
    wall_clock_limit(args.time_limit)
    torch.set_num_threads(1)
    torch.manual_seed(1234)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}",
                            rank=rank, world_size=args.world_size)
    corpus = Corpus(args.seq_len, seed=rank)
    model = CharLM(corpus.vocab, args.width, args.layers, args.seq_len)
    optimizer = ShardedAdam(model, lr=args.lr)
    calibrate(model, corpus, args, log)

    began = time.time()
    for step in range(args.steps):
        x, y = corpus.batch(args.batch_size)
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 20 == 0:
            log.info("step %d loss %.3f (%.1f steps/s)", step, loss.item(),
                     (step + 1) / (time.time() - began))
    dist.barrier()
    dist.destroy_process_group()


def main():
    args = parse_args()
    mp.spawn(run, args=(args, free_port()), nprocs=args.world_size, join=True)


if __name__ == "__main__":
    main()
