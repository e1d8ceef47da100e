"""Language model on streamed shards with DistributedDataParallel (gloo)."""
import argparse
import logging
import os
import socket
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader

from shards import ShardStream, perplexity, write_shards


class TinyLM(nn.Module):
    def __init__(self, vocab=500, dim=48):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, vocab)

    def forward(self, x):
        return self.out(self.rnn(self.emb(x))[0])


def train_epoch(model, opt, loader, log, epoch):
    losses = []
    for step, (x, y) in enumerate(loader):
        loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
        if step % 20 == 0:
            log.info("epoch %d step %d loss %.3f", epoch, step, losses[-1])
    return losses


def report(losses, rank, log, epoch):
    stats = [None] * dist.get_world_size()
    dist.all_gather_object(stats, {"rank": rank, "steps": len(losses), "ppl": perplexity(losses)})
    if rank == 0:
        log.info("epoch %d summary %s", epoch, stats)


def run(rank, world_size, port, paths, args):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s rank{rank} %(message)s")
    log = logging.getLogger("lm")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    torch.manual_seed(0)
    model = DDP(TinyLM())
    opt = torch.optim.Adam(model.parameters(), 2e-3)
    loader = DataLoader(ShardStream(paths, rank, world_size), batch_size=args.batch_size)
    for epoch in range(args.epochs):
        losses = train_epoch(model, opt, loader, log, epoch)
        report(losses, rank, log, epoch)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--world-size", type=int, default=3)
    ap.add_argument("--epochs", type=int, default=20)
    ap.add_argument("--batch-size", type=int, default=16)
    ap.add_argument("--shards", type=int, default=7)
    args = ap.parse_args()
    torch.set_num_threads(1)
    root = tempfile.mkdtemp(prefix="lm_shards_")
    paths = write_shards(root, args.shards)
    mp.start_processes(
        run, args=(args.world_size, free_port(), paths, args), nprocs=args.world_size, start_method="fork"
    )


if __name__ == "__main__":
    main()
