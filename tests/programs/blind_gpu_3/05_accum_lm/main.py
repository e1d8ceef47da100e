"""Language model pre-training with gradient accumulation on several data-parallel ranks."""
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
from torch.nn.parallel import DistributedDataParallel as DDP

from model import DecoderLM

log = logging.getLogger("pretrain")


class TokenStream:
    def __init__(self, vocab, seq_len, rank):
        self.vocab, self.seq_len = vocab, seq_len
        self.rng = torch.Generator().manual_seed(5 + rank)
        self.corpus = torch.randint(0, vocab, (400_000,), generator=self.rng)

    def next(self, batch):
        start = torch.randint(0, len(self.corpus) - self.seq_len - 1, (batch,), generator=self.rng)
        rows = torch.stack([self.corpus[s:s + self.seq_len + 1] for s in start.tolist()])
        return rows[:, :-1], rows[:, 1:]


class Pretrainer:
    def __init__(self, args, rank, world_size, device):
        self.args, self.rank, self.world_size, self.device = args, rank, world_size, device
        assert args.global_batch % (world_size * args.microbatch) == 0
        self.grad_accum = args.global_batch // (world_size * args.microbatch)
        torch.manual_seed(args.seed)
        net = DecoderLM(args.vocab, args.dim, args.heads, args.layers, args.seq_len).to(device)
        self.model = DDP(net, device_ids=[0] if device == "cuda" else None)
        self.optim = torch.optim.SGD(self.model.parameters(), lr=args.lr, momentum=0.9)
        self.stream = TokenStream(args.vocab, args.seq_len, rank)
        if rank == 0:
            count = sum(p.numel() for p in net.parameters()) / 1e6
            log.info("%.1fM parameters, %d micro-batches per step and rank", count, self.grad_accum)

    def train_step(self):
        self.optim.zero_grad(set_to_none=False)
        total = torch.zeros((), device=self.device)
        for _ in range(self.grad_accum):
            ids, labels = self.stream.next(self.args.microbatch)
            ids, labels = ids.to(self.device), labels.to(self.device)
            logits = self.model(ids)
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()) / self.grad_accum
            loss.backward()
            total += loss.detach()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.args.max_norm)
        self.optim.step()
        return total.item()

    def train(self):
        tokens = self.args.global_batch * self.args.seq_len
        for step in range(self.args.steps):
            began = time.time()
            loss = self.train_step()
            if self.rank == 0 and step % self.args.log_every == 0:
                took = time.time() - began
                log.info("step %d loss %.3f %.2f s/step %.0f tok/s", step, loss, took, tokens / took)


def limit_walltime(seconds):
    timer = threading.Timer(seconds, lambda: os._exit(0))
    timer.daemon = True
    timer.start()


def worker(rank, args, port):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    limit_walltime(args.time_limit)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), NCCL_HOSTID=f"node{rank}")
    torch.set_num_threads(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda":
        torch.cuda.set_device(0)
    dist.init_process_group("nccl" if device == "cuda" else "gloo", rank=rank, world_size=args.world_size)
    Pretrainer(args, rank, args.world_size, device).train()
    dist.destroy_process_group()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--world-size", type=int, default=2)
    p.add_argument("--global-batch", type=int, default=64)
    p.add_argument("--microbatch", type=int, default=2)
    p.add_argument("--seq-len", type=int, default=32)
    p.add_argument("--vocab", type=int, default=8000)
    p.add_argument("--dim", type=int, default=640)
    p.add_argument("--heads", type=int, default=10)
    p.add_argument("--layers", type=int, default=8)
    p.add_argument("--lr", type=float, default=0.01)
    p.add_argument("--max-norm", type=float, default=1.0)
    p.add_argument("--steps", type=int, default=100000)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--log-every", type=int, default=1)
    p.add_argument("--time-limit", type=float, default=120)
    args = p.parse_args()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(worker, args=(args, port), nprocs=args.world_size)


if __name__ == "__main__":
    main()
