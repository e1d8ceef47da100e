import argparse
import logging
import os
import tempfile
import threading
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn import functional as F

from corpus import MarkovCorpus
from diloco import DiLoCo

log = logging.getLogger("diloco")


class TinyLM(nn.Module):
    def __init__(self, vocab=96, dim=64, layers=2, context=48):
        super().__init__()
        self.tok = nn.Embedding(vocab, dim)
        self.pos = nn.Embedding(context, dim)
        layer = nn.TransformerEncoderLayer(dim, 4, 4 * dim, dropout=0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(dim, vocab)
        self.register_buffer("mask", torch.full((context, context), float("-inf")).triu(1))

    def forward(self, x):
        n = x.size(1)
        h = self.tok(x) + self.pos(torch.arange(n))
        return self.head(self.blocks(h, mask=self.mask[:n, :n]))


def norm(params):
    return torch.sqrt(sum(p.detach().pow(2).sum() for p in params)).item()


def train(rank, args):
    torch.manual_seed(rank)
    model = TinyLM()
    inner = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.1, betas=(0.9, 0.95))
    algo = DiLoCo(model, inner, args.outer_lr, args.outer_momentum, args.sync_every)
    data = MarkovCorpus(rank, args.world)
    start, flag, step = time.time(), torch.zeros(1), 0
    running = 0.0
    while True:
        x, y = data.batch(args.context)
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        inner.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        synced = algo.step()
        step += 1
        running += loss.item()
        if step % args.log_every == 0:
            log.info("step %d local loss %.3f |w| %.5f", step, running / args.log_every, norm(model.parameters()))
            running = 0.0
        if synced:
            log.info("round %d outer step |global| %.5f", algo.rounds, norm(algo.global_params))
            flag.fill_(float(time.time() - start > args.seconds))
            dist.broadcast(flag, 0)
            if flag.item():
                break
    if rank == 0:
        log.info("finished after %d rounds", algo.rounds)


def worker(rank, args, rdzv):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s site{rank} %(message)s")
    t = threading.Timer(148, os._exit, (0,))
    t.daemon = True
    t.start()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{rdzv}", rank=rank, world_size=args.world)
    train(rank, args)
    dist.destroy_process_group()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--world", type=int, default=3)
    p.add_argument("--context", type=int, default=48)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--outer-lr", type=float, default=0.5)
    p.add_argument("--outer-momentum", type=float, default=0.8)
    p.add_argument("--sync-every", type=int, default=60)
    p.add_argument("--log-every", type=int, default=20)
    p.add_argument("--seconds", type=float, default=110)
    args = p.parse_args()
    with tempfile.TemporaryDirectory() as tmp:
        mp.spawn(worker, args=(args, os.path.join(tmp, "rdzv")), nprocs=args.world)


if __name__ == "__main__":
    main()
