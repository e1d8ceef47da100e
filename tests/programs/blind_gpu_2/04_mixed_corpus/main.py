"""Draft-model distillation on a mix of documents and chat turns (DDP)."""
import argparse
import logging
import os
import socket
import threading
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from sources import InterleavedCorpus, TextSource, pad

device = "cuda" if torch.cuda.is_available() else "cpu"
backend = "nccl" if device == "cuda" else "gloo"
VOCAB = 4000


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--dp-size", type=int, default=2)
    p.add_argument("--global-batch", type=int, default=8)
    p.add_argument("--doc-len", type=int, default=3072 if device == "cuda" else 768)
    p.add_argument("--chat-len", type=int, default=96)
    p.add_argument("--width", type=int, default=512 if device == "cuda" else 192)
    p.add_argument("--layers", type=int, default=6 if device == "cuda" else 3)
    p.add_argument("--log-every", type=int, default=10)
    p.add_argument("--walltime", type=float, default=125.0)
    return p.parse_args()


class DraftModel(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, width, padding_idx=0)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 8, 4 * width, dropout=0.0, batch_first=True,
                                       norm_first=True) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.score = nn.Linear(width, 256)

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.score(self.norm(x))


class TrainingController:
    """Draws global batches (same seed on each rank) and hands out a rank's part."""

    def __init__(self, args, rank):
        self.args, self.rank = args, rank
        self.corpus = InterleavedCorpus([
            TextSource("documents", args.doc_len * 3 // 4, args.doc_len, VOCAB, seed=1),
            TextSource("chat", args.chat_len // 3, args.chat_len, VOCAB, seed=2)])
        self.model = DDP(DraftModel(args.width, args.layers).to(device))
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=1e-4)

    def partition(self, samples):
        parts = [[] for _ in range(self.args.dp_size)]
        for i, sample in enumerate(samples):
            parts[i % self.args.dp_size].append(sample)
        return parts

    def step(self):
        parts = self.partition(self.corpus.global_batch(self.args.global_batch))
        ids = pad(parts[self.rank]).to(device, non_blocking=True)
        out = self.model(ids)
        mask = (ids != 0).unsqueeze(-1)
        loss = ((out - torch.sin(ids.unsqueeze(-1).float())) ** 2 * mask).sum() / mask.sum()
        self.opt.zero_grad(set_to_none=True)
        loss.backward()
        self.opt.step()
        return loss.item(), int(mask.sum())

    def run(self):
        step, tokens, tick = 0, 0, time.monotonic()
        while True:
            loss, n = self.step()
            step, tokens = step + 1, tokens + n
            if step % self.args.log_every == 0:
                if self.rank == 0:
                    logging.info("step %d loss %.4f %.2f s/it", step, loss,
                                 (time.monotonic() - tick) / self.args.log_every)
                tick = time.monotonic()


def worker(rank, args, port):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [{rank}] %(message)s")
    t = threading.Timer(args.walltime, os._exit, (0,))
    t.daemon = True
    t.start()
    os.environ["NCCL_HOSTID"] = f"node{rank}"
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if device == "cuda":
        torch.cuda.set_device(0)
    dist.init_process_group(backend, init_method=f"tcp://127.0.0.1:{port}", rank=rank,
                            world_size=args.dp_size)
    TrainingController(args, rank).run()


def main():
    args = parse()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(worker, args=(args, port), nprocs=args.dp_size)


if __name__ == "__main__":
    main()
