"""The application: sentence similarity over a small embedding model."""
import json

import torch
from torch import nn


class SimilarityApp:
    def __init__(self, vocab=4096, dim=64):
        torch.manual_seed(1)
        self.vocab = vocab
        self.emb = nn.EmbeddingBag(vocab, dim, mode="mean")
        self.proj = nn.Sequential(nn.Linear(dim, 256), nn.Tanh(), nn.Linear(256, dim))

    def bucket(self, word):
        h = 2166136261
        for c in word.encode():
            h = ((h ^ c) * 16777619) & 0xFFFFFFFF
        return h % self.vocab

    @torch.inference_mode()
    def encode(self, text):
        ids = torch.tensor([[self.bucket(w) for w in text.lower().split()] or [0]])
        return nn.functional.normalize(self.proj(self.emb(ids)), dim=-1)[0]

    def __call__(self, body):
        request = json.loads(body)
        query = self.encode(request["query"])
        docs = torch.stack([self.encode(d) for d in request["documents"]])
        scores = (docs @ query).tolist()
        return json.dumps({"scores": [round(s, 4) for s in scores]}).encode()
