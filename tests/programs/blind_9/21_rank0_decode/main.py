"""Data-parallel language model; after each epoch rank 0 decodes the test set while the others wait."""
import argparse
import logging
import os
import socket
import time
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

from decode import decode_test_set
from optim import MomentumSgd

log = logging.getLogger("lm")


class NextToken(nn.Module):
    def __init__(self, vocab, dim):
        super().__init__()
        self.emb, self.out = nn.Embedding(vocab, dim), nn.Linear(dim, vocab)

    def forward(self, t):
        return self.out(self.emb(t))


def worker(rank, args, port):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [rank {rank}] %(message)s")
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=args.world_size, timeout=timedelta(minutes=30))
    torch.manual_seed(0)
    model = NextToken(args.vocab, 32)
    opt = MomentumSgd(model.parameters(), 0.05)
    g = torch.Generator().manual_seed(rank)
    for epoch in range(args.epochs):
        for step in range(args.steps):
            t = torch.randint(0, args.vocab, (128,), generator=g)
            loss = nn.functional.cross_entropy(model(t), (t * 7 + 1) % args.vocab)
            opt.zero_grad()
            loss.backward()
            for p in model.parameters():
                dist.all_reduce(p.grad)
                p.grad /= args.world_size
            opt.step()
            time.sleep(0.02)
        if rank == 0:
            log.info("epoch %d loss %.4f; decoding the test set, the other ranks wait", epoch, loss.item())
            score = decode_test_set(model, args.vocab, args.sentences, args.length)
            log.info("epoch %d test score %.3f", epoch, score)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--world-size", type=int, default=4)
    ap.add_argument("--vocab", type=int, default=500)
    ap.add_argument("--epochs", type=int, default=1000)
    ap.add_argument("--steps", type=int, default=60)
    ap.add_argument("--sentences", type=int, default=400)
    ap.add_argument("--length", type=int, default=40)
    a = ap.parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.start_processes(worker, args=(a, port), nprocs=a.world_size, start_method="fork")
