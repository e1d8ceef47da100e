import logging
import queue
import time

import torch
import torch.nn as nn

log = logging.getLogger("worker")


class TokenTable:
    """Vectors of the tokens seen so far; the hashing trick computes them on first use."""

    def __init__(self, dim=768):
        self.dim = dim
        self.vectors = {}

    def __getitem__(self, token):
        vec = self.vectors.get(token)
        if vec is None:
            gen = torch.Generator().manual_seed(token)
            vec = self.vectors[token] = torch.randn(self.dim, generator=gen)
        return vec


class Embedder:
    def __init__(self):
        torch.manual_seed(0)
        self.table = TokenTable()
        self.mix = nn.Sequential(nn.Linear(768, 256), nn.GELU(), nn.Linear(256, 128))

    @torch.no_grad()
    def embed(self, docs):
        pooled = torch.stack([torch.stack([self.table[t] for t in doc]).mean(dim=0) for doc in docs])
        return self.mix(pooled)


def run_worker(slot, tasks, results, stopping, lifetime):
    torch.set_num_threads(1)
    embedder = Embedder()
    born = time.time()
    handled = 0
    while not stopping.is_set():
        if time.time() - born > lifetime:
            log.info("retires after %.0fs, %d tasks, %d tokens in the table",
                     time.time() - born, handled, len(embedder.table.vectors))
            return
        try:
            task_id, docs = tasks.get(timeout=0.5)
        except queue.Empty:
            continue
        vectors = embedder.embed(docs)
        time.sleep(0.15)  # upload to the vector store
        results.put((task_id, float(vectors.norm(dim=1).mean())))
        handled += 1
