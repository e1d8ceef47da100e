"""torchrun --standalone --nproc-per-node 3 train_lm.py"""
import argparse
import logging
import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

from corpus import prepare

log = logging.getLogger("lm")


class TinyLM(nn.Module):
    def __init__(self, vocab=512, d=32):
        super().__init__()
        self.emb, self.rnn, self.out = nn.Embedding(vocab, d), nn.GRU(d, d, batch_first=True), nn.Linear(d, vocab)

    def forward(self, x):
        return self.out(self.rnn(self.emb(x))[0])


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=900)
    ap.add_argument("--timeout-min", type=int, default=20)
    args = ap.parse_args()
    dist.init_process_group("gloo", timeout=timedelta(minutes=args.timeout_min))
    rank, world = dist.get_rank(), dist.get_world_size()
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [{rank}] %(message)s")
    torch.set_num_threads(1)
    path = f"/tmp/vocab_{os.environ['TORCHELASTIC_RUN_ID']}.pt"
    log.info("preparing vocabulary on rank 0 (takes about half a minute)")
    vocab = prepare(path, rank, dist.barrier)
    log.info("vocabulary of %d pairs", len(vocab))
    model = TinyLM()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(args.steps):
        x = torch.randint(0, 512, (8, 32))
        loss = nn.functional.cross_entropy(model(x)[:, :-1].flatten(0, 1), x[:, 1:].flatten())
        opt.zero_grad()
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= world
        opt.step()
        time.sleep(0.06)
        if rank == 0 and step % 50 == 0:
            log.info("step %d loss %.3f", step, loss.item())
    if rank == 0:
        os.unlink(path)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
