"""Data-parallel training of a small GPT on a token file, after the usual nano-sized recipe."""
import argparse
import logging
import os
import socket
import tempfile
import threading
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP

from model import GPT, GPTConfig


def prepare(path, millions, vocab, seed=0):
    """Writes the token file; stands in for the preparation script of the data set."""
    rng = np.random.default_rng(seed)
    block = rng.zipf(1.3, 4_000_000) % vocab
    with open(path, "wb") as f:
        for i in range(millions // 4):
            np.roll(block, i * 977).astype(np.uint16).tofile(f)


class Batches:
    """Random crops out of a window that moves through the token file as the training goes on."""

    def __init__(self, data_dir, block_size, batch_size, window, advance, seed):
        self.block_size = block_size
        self.batch_size = batch_size
        self.window = window
        self.advance = advance
        self.generator = torch.Generator().manual_seed(seed)
        self.data = np.memmap(os.path.join(data_dir, "train.bin"), dtype=np.uint16, mode="r")

    def get_batch(self, it):
        start = it * self.advance % (len(self.data) - self.window)
        ix = start + torch.randint(self.window - self.block_size - 1, (self.batch_size,), generator=self.generator)
        x = torch.stack([torch.from_numpy(self.data[i: i + self.block_size].astype(np.int64)) for i in ix])
        y = torch.stack([torch.from_numpy(self.data[i + 1: i + 1 + self.block_size].astype(np.int64)) for i in ix])
        return x, y


def rss_mib():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def get_lr(it, args):
    if it < args.warmup_iters:
        return args.learning_rate * (it + 1) / args.warmup_iters
    decay = min(1.0, (it - args.warmup_iters) / max(1, args.lr_decay_iters - args.warmup_iters))
    return args.learning_rate * (1.0 - 0.9 * decay)


def train(rank, args):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [rank {rank}] %(message)s")
    log = logging.getLogger("train")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(args.port))
    threading.Thread(target=lambda: (time.sleep(args.max_seconds + 15), os._exit(0)), daemon=True).start()
    torch.set_num_threads(1)
    torch.manual_seed(1337)
    dist.init_process_group("gloo", rank=rank, world_size=args.world_size)
    model = DDP(GPT(GPTConfig(vocab_size=args.vocab_size, block_size=args.block_size)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate)
    batches = Batches(args.data_dir, args.block_size, args.batch_size, args.window_tokens, args.window_advance,
                      seed=1337 + rank)
    if rank == 0:
        log.info("%.2fM parameters, %.0fM tokens", sum(p.numel() for p in model.parameters()) / 1e6,
                 len(batches.data) / 1e6)

    started = last = time.monotonic()
    it = 0
    while True:
        stop = torch.tensor([time.monotonic() - started > args.max_seconds], dtype=torch.int32)
        dist.broadcast(stop, 0)
        if stop.item():
            break
        for group in optimizer.param_groups:
            group["lr"] = get_lr(it, args)
        for micro in range(args.gradient_accumulation):
            x, y = batches.get_batch(it)
            model.require_backward_grad_sync = micro == args.gradient_accumulation - 1
            _, loss = model(x, y)
            (loss / args.gradient_accumulation).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        it += 1
        if it % args.log_interval == 0:
            now = time.monotonic()
            log.info("iter %d: loss %.4f, time %.0f ms, rss %.0f MiB", it, loss.item(),
                     (now - last) * 1000 / args.log_interval, rss_mib())
            last = now
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--world-size", type=int, default=2)
    parser.add_argument("--data-dir", default=None)
    parser.add_argument("--tokens-millions", type=int, default=300)
    parser.add_argument("--vocab-size", type=int, default=512)
    parser.add_argument("--block-size", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=12)
    parser.add_argument("--window-tokens", type=int, default=2_000_000)
    parser.add_argument("--window-advance", type=int, default=400_000)
    parser.add_argument("--gradient-accumulation", type=int, default=4)
    parser.add_argument("--learning-rate", type=float, default=6e-4)
    parser.add_argument("--warmup-iters", type=int, default=50)
    parser.add_argument("--lr-decay-iters", type=int, default=2000)
    parser.add_argument("--log-interval", type=int, default=10)
    parser.add_argument("--max-seconds", type=float, default=100)
    args = parser.parse_args()
    if args.data_dir is None:
        args.data_dir = tempfile.mkdtemp(prefix="tokens_")
        prepare(os.path.join(args.data_dir, "train.bin"), args.tokens_millions, args.vocab_size)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        args.port = s.getsockname()[1]
    mp.spawn(train, args=(args,), nprocs=args.world_size)


if __name__ == "__main__":
    main()
