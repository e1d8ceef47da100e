import argparse
import logging
import os
import shutil
import socket
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from mapping import load_split


class TinyLM(nn.Module):
    def __init__(self, vocab=1000, dim=32):
        super().__init__()
        self.embedding = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, vocab)

    def forward(self, ids):
        hidden, _ = self.rnn(self.embedding(ids))
        return self.out(hidden)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def train(model, optimizer, data, steps, rank, log, pause):
    criterion = nn.CrossEntropyLoss()
    generator = torch.Generator().manual_seed(rank)
    for step in range(steps):
        ids = data[torch.randint(0, len(data), (8,), generator=generator)]
        time.sleep(pause)
        logits = model(ids[:, :-1])
        loss = criterion(logits.reshape(-1, logits.size(-1)), ids[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 25 == 0:
            log.info("step %d/%d loss %.3f", step, steps, loss.item())


def worker(rank, args, port, cache_dir):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [rank{rank}] %(name)s %(message)s")
    log = logging.getLogger("trainer")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=args.world_size)
    model = DDP(TinyLM())
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

    pretrain = load_split("pretrain", args.pretrain_shards, cache_dir, rank)
    train(model, optimizer, pretrain, args.steps, rank, log, args.pause)
    finetune = load_split("finetune", args.finetune_shards, cache_dir, rank)
    train(model, optimizer, finetune, args.steps // 4, rank, log, args.pause)
    dist.barrier()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--world-size", type=int, default=3)
    parser.add_argument("--pretrain-shards", type=int, default=280)
    parser.add_argument("--finetune-shards", type=int, default=150)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--pause", type=float, default=0.08)
    args = parser.parse_args()
    cache_dir = tempfile.mkdtemp(prefix="token_cache_")
    port = free_port()
    ranks = [mp.Process(target=worker, args=(rank, args, port, cache_dir)) for rank in range(args.world_size)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    shutil.rmtree(cache_dir, ignore_errors=True)
    return max(process.exitcode for process in ranks)


if __name__ == "__main__":
    sys.exit(main())
