"""Character LM with the optimizer state sharded over the ranks."""
import argparse
import logging
import os
import socket
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP

from checkpoint import Checkpointer

log = logging.getLogger("zero_lm")


class CharLM(nn.Module):
    def __init__(self, vocab=96, dim=128, layers=2):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.pos = nn.Parameter(torch.zeros(1, 64, dim))
        block = nn.TransformerEncoderLayer(dim, 4, 256, batch_first=True, dropout=0.0)
        self.body = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
        self.out = nn.Linear(dim, vocab)

    def forward(self, x):
        n = x.size(1)
        mask = nn.Transformer.generate_square_subsequent_mask(n)
        return self.out(self.body(self.emb(x) + self.pos[:, :n], mask=mask, is_causal=True))


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def train(rank, args, port):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s rank{rank} %(name)s %(message)s")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=args.world_size)
    torch.set_num_threads(1)
    torch.manual_seed(0)

    model = DDP(CharLM())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.AdamW, lr=3e-4)
    ckpt = Checkpointer(args.out)
    gen = torch.Generator().manual_seed(rank)
    for step in range(1, args.steps + 1):
        x = torch.randint(0, 96, (args.batch_size, 49), generator=gen)
        loss = nn.functional.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 5 == 0:
            log.info("step %d loss %.3f", step, loss.item())
        if step % args.save_every == 0:
            if rank == 0:
                ckpt.save(step, model.module, optimizer)
            dist.barrier()
    dist.destroy_process_group()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--world-size", type=int, default=3)
    p.add_argument("--steps", type=int, default=2000)
    p.add_argument("--batch-size", type=int, default=8)
    p.add_argument("--save-every", type=int, default=10)
    p.add_argument("--out", type=Path, default=Path("runs"))
    args = p.parse_args()
    mp.spawn(train, args=(args, free_port()), nprocs=args.world_size)


if __name__ == "__main__":
    main()
