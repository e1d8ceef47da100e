import logging
import time

import numpy as np
import torch
from torch import nn

from indexing import CorpusIndex

log = logging.getLogger("tokens.worker")


class NextToken(nn.Module):
    def __init__(self, vocab=64, width=16):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.out = nn.Linear(width, vocab)

    def forward(self, tokens):
        return self.out(self.embed(tokens))


def sgd_step(module, lr):
    with torch.no_grad():
        for p in module.parameters():
            p.sub_(p.grad, alpha=lr)
            p.grad = None


class Worker:
    def __init__(self, ident, index_path, ready, shards):
        self.ident = ident
        self.index_path = index_path
        self.ready = ready
        self.index = CorpusIndex(shards)
        self.model = NextToken()

    def prepare(self, read_seconds):
        if self.ident == 0:
            np.save(self.index_path, self.index.build(read_seconds))
            self.ready.set()
        elif not self.ready.wait(timeout=600):
            raise TimeoutError("index was not built in time")
        self.index.offsets = np.load(self.index_path, mmap_mode="r")
        log.info("worker %d sees %d samples", self.ident, len(self.index.offsets))

    def train(self, seconds):
        rng = np.random.default_rng(self.ident)
        deadline, step = time.monotonic() + seconds, 0
        while time.monotonic() < deadline:
            starts = self.index.offsets[rng.integers(0, len(self.index.offsets), 32)]
            tokens = torch.from_numpy((starts[:, None] + np.arange(17)) % 64)
            logits = self.model(tokens[:, :-1])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
            loss.backward()
            sgd_step(self.model, 0.1)
            step += 1
            if step % 100 == 0:
                log.info("worker %d step %d loss %.3f", self.ident, step, loss.item())
            time.sleep(0.02)


def worker_main(ident, index_path, ready, args):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    torch.set_num_threads(1)
    worker = Worker(ident, index_path, ready, args.shards)
    worker.prepare(args.read_seconds)
    worker.train(args.train_seconds)
