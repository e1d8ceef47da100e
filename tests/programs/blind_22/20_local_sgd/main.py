"""Character model trained with local SGD; every rank owns one corpus."""
import argparse
import logging
import os
import socket
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn import functional as F

from local_sgd import LocalSGD, fingerprint

log = logging.getLogger("localsgd")

SENTENCE_LENGTHS = (24, 32, 96)


class CharModel(nn.Module):
    def __init__(self, vocab=40, hidden=96):
        super().__init__()
        self.embed = nn.Embedding(vocab, hidden)
        self.rnn = nn.GRU(hidden, hidden, batch_first=True)
        self.out = nn.Linear(hidden, vocab)

    def forward(self, tokens):
        return self.out(self.rnn(self.embed(tokens))[0])


class MarkovCorpus:
    """Text from a random Markov chain; the chains of the ranks are variations of one."""

    def __init__(self, rank, length, vocab=40):
        base = torch.rand(vocab, vocab, generator=torch.Generator().manual_seed(8)) ** 6
        self.gen = torch.Generator().manual_seed(60 + rank)
        self.table = base + 0.05 * torch.rand(vocab, vocab, generator=self.gen) ** 6
        self.length = length
        self.vocab = vocab

    def batch(self, n):
        tokens = torch.empty(n, self.length, dtype=torch.long)
        tokens[:, 0] = torch.randint(0, self.vocab, (n,), generator=self.gen)
        for t in range(1, self.length):
            tokens[:, t] = torch.multinomial(self.table[tokens[:, t - 1]], 1, generator=self.gen)[:, 0]
        return tokens


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sync-every", type=int, default=40)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--steps", type=int, default=1000000)
    parser.add_argument("--log-every", type=int, default=10)
    parser.add_argument("--max-seconds", type=float, default=118.0)
    return parser.parse_args()


def run(rank, world, args, port, outdir):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s rank{rank} %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
    torch.manual_seed(rank)
    model = CharModel()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    local = LocalSGD(model, optimizer, args.sync_every)
    corpus = MarkovCorpus(rank, SENTENCE_LENGTHS[rank])
    deadline = time.time() + args.max_seconds
    late = torch.zeros(1)
    for step in range(args.steps):
        tokens = corpus.batch(args.batch_size)
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), tokens[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        if step % args.log_every == 0:
            log.info("step %d loss %.4f weights %.4f", step, loss.item(), fingerprint(model))
        if local.step():
            log.info("round %d averaged, weights %.4f", local.rounds, fingerprint(model))
            if rank == 0:
                torch.save(model.state_dict(), os.path.join(outdir, "global.pt"))
            late[0] = float(time.time() > deadline)
            dist.all_reduce(late, op=dist.ReduceOp.MAX)
            if late.item():
                break
    dist.destroy_process_group()


def main():
    args = parse_args()
    world = len(SENTENCE_LENGTHS)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="local_sgd_") as outdir:
        mp.spawn(run, args=(world, args, port, outdir), nprocs=world, join=True)


if __name__ == "__main__":
    main()
