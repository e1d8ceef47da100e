"""Byte-pair language model on several ranks; rank 0 learns the vocabulary first."""
import argparse
import logging
import os
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from bpe import learn_bpe, synthetic_corpus

log = logging.getLogger("vocab_ddp")


class TinyLM(nn.Module):
    def __init__(self, vocab, dim=96):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, vocab)

    def forward(self, x):
        h, _ = self.rnn(self.emb(x))
        return self.out(h)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def build_vocab(rank, args):
    box = [None]
    if rank == 0:
        corpus = synthetic_corpus(args.words, seed=3)
        log.info("learning merges from %d distinct words", len(corpus))
        t0 = time.time()
        box[0] = learn_bpe(corpus, args.merges, args.bpe_seconds)
        log.info("%d merges in %.1f s", len(box[0]), time.time() - t0)
    dist.broadcast_object_list(box, src=0)
    return box[0]


@torch.no_grad()
def evaluate(model, vocab, seconds, gen):
    model.eval()
    t_end, total, n = time.monotonic() + seconds, 0.0, 0
    while time.monotonic() < t_end:
        x = torch.randint(0, vocab, (16, 49), generator=gen)
        logits = model(x[:, :-1])
        total += nn.functional.cross_entropy(logits.flatten(0, 1), x[:, 1:].flatten()).item()
        n += 1
    model.train()
    return total / max(n, 1)


def worker(rank, args, port):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s rank{rank} %(message)s")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=args.world_size)
    torch.set_num_threads(1)
    torch.manual_seed(rank)

    merges = build_vocab(rank, args)
    vocab = 64 + len(merges)
    model = DDP(TinyLM(vocab))
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    gen = torch.Generator().manual_seed(100 + rank)

    t_end = time.monotonic() + args.train_seconds
    step = 0
    while True:
        go = torch.tensor([1.0 if time.monotonic() < t_end else 0.0])
        dist.broadcast(go, src=0)
        if go.item() == 0:
            break
        x = torch.randint(0, vocab, (8, 33), generator=gen)
        loss = nn.functional.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
        step += 1
        if rank == 0 and step % 20 == 0:
            log.info("step %d loss %.3f", step, loss.item())
        if step % args.eval_every == 0:
            if rank == 0:
                log.info("held-out loss %.3f", evaluate(model.module, vocab, args.eval_seconds, gen))
            dist.barrier()
    dist.destroy_process_group()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--world-size", type=int, default=3)
    p.add_argument("--words", type=int, default=30000)
    p.add_argument("--merges", type=int, default=2000)
    p.add_argument("--bpe-seconds", type=float, default=20.0)
    p.add_argument("--train-seconds", type=float, default=80.0)
    p.add_argument("--eval-every", type=int, default=150)
    p.add_argument("--eval-seconds", type=float, default=5.0)
    args = p.parse_args()
    mp.spawn(worker, args=(args, free_port()), nprocs=args.world_size)


if __name__ == "__main__":
    main()
