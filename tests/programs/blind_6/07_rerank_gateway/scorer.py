"""Scoring process: a tiny cross encoder behind a pipe."""
import time

import torch
from torch import nn


class CrossScorer(nn.Module):
    def __init__(self, vocab=2048, dim=48):
        super().__init__()
        self.vocab = vocab
        self.emb = nn.EmbeddingBag(vocab, dim)
        self.out = nn.Sequential(nn.Linear(2 * dim, 64), nn.ReLU(), nn.Linear(64, 1))

    def ids(self, text):
        return torch.tensor([[sum(w.encode()) % self.vocab for w in text.split()]])

    @torch.inference_mode()
    def forward(self, query, passages):
        q = self.emb(self.ids(query)).expand(len(passages), -1)
        p = torch.cat([self.emb(self.ids(t)) for t in passages])
        return self.out(torch.cat([q, p], 1)).squeeze(1).tolist()


def scorer_main(conn):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = CrossScorer().eval()
    while True:
        try:
            query, passages = conn.recv()
        except EOFError:
            return
        time.sleep(0.01 * len(passages))
        conn.send(model(query, passages))
