"""Masked n-gram model, data parallel over nodes with node-local shards."""
import argparse
import logging
import os
import socket
import tempfile
import threading
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from checkpoint import Checkpointer
from corpus import ShardIndex

device = "cuda" if torch.cuda.is_available() else "cpu"
backend = "nccl" if device == "cuda" else "gloo"


def build_args():
    p = argparse.ArgumentParser()
    p.add_argument("--world-size", type=int, default=2)
    p.add_argument("--batch-size", type=int, default=32)
    p.add_argument("--width", type=int, default=192)
    p.add_argument("--layers", type=int, default=3)
    p.add_argument("--max-steps", type=int, default=100000)
    p.add_argument("--checkpoint-seconds", type=float, default=6.0)
    p.add_argument("--log-every", type=int, default=20)
    p.add_argument("--walltime", type=float, default=125.0)
    return p.parse_args()


class NgramModel(nn.Module):
    def __init__(self, vocab, width, layers):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
        self.body = nn.TransformerEncoder(layer, layers)
        self.head = nn.Linear(width, vocab)

    def forward(self, ids):
        return self.head(self.body(self.embed(ids)))


def train(args, rank, out_dir):
    checkpointer = Checkpointer(out_dir, args.checkpoint_seconds)
    index = ShardIndex(rank)
    checkpointer.arm()
    logging.info("index ready: %d documents", len(index.docs))
    model = NgramModel(index.vocab, args.width, args.layers).to(device)
    model = DDP(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    window, tick = 0.0, time.monotonic()
    for step in range(1, args.max_steps + 1):
        ids = index.batch(args.batch_size).to(device)
        mask = torch.rand(ids.shape, device=device) < 0.15
        logits = model(ids.masked_fill(mask, 0))
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        window += loss.item()
        if step % args.log_every == 0:
            if rank == 0:
                logging.info("step %d loss %.4f %.1f it/s", step, window / args.log_every,
                             args.log_every / (time.monotonic() - tick))
            window, tick = 0.0, time.monotonic()
        checkpointer.maybe_save(step, model.module, optimizer, index.state())


def entry(rank, args, port, out_dir):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s rank{rank} %(name)s: %(message)s")
    clock = threading.Timer(args.walltime, os._exit, (0,))
    clock.daemon = True
    clock.start()
    os.environ["NCCL_HOSTID"] = f"node{rank}"
    torch.set_num_threads(1)
    torch.manual_seed(1234)
    if device == "cuda":
        torch.cuda.set_device(0)
    dist.init_process_group(backend, init_method=f"tcp://127.0.0.1:{port}", rank=rank,
                            world_size=args.world_size)
    train(args, rank, out_dir)


if __name__ == "__main__":
    args = build_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="ngram_") as out_dir:
        mp.spawn(entry, args=(args, port, out_dir), nprocs=args.world_size)
