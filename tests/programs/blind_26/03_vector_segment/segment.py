"""Vector segment in shared memory; an inverted list of centroids points to its rows."""
import os

import numpy as np
import torch


class VectorSegment:
    def __init__(self, capacity, dim, lists, folder):
        self.capacity = capacity
        self.vectors = torch.zeros(capacity, dim).share_memory_()
        self.assignment = torch.zeros(capacity, dtype=torch.int32).share_memory_()
        self.size = torch.zeros(1, dtype=torch.int64).share_memory_()
        self.version = torch.zeros(1, dtype=torch.int64).share_memory_()
        self.centroids = torch.randn(lists, dim, generator=torch.Generator().manual_seed(5)).share_memory_()
        self.documents = os.path.join(folder, "documents.bin")
        self.record = 512
        with open(self.documents, "wb") as f:
            f.truncate(capacity * self.record)

    def add(self, batch):
        start = int(self.size)
        rows = (torch.arange(len(batch)) + start) % self.capacity
        self.vectors[rows] = batch
        self.assignment[rows] = (batch @ self.centroids.T).argmax(1).to(torch.int32)
        with open(self.documents, "r+b") as f:
            for row in rows.tolist():
                f.seek(row * self.record)
                f.write(np.random.default_rng(row).bytes(self.record))
        self.size += len(batch)
        self.version += 1

    def search(self, query, k, probes=4):
        near = (self.centroids @ query).topk(probes).indices.to(torch.int32)
        stored = min(int(self.size), self.capacity)
        rows = torch.isin(self.assignment[:stored], near).nonzero().flatten()
        scores = self.vectors[rows] @ query
        best = scores.topk(min(k, len(rows)))
        return rows[best.indices], best.values

    def fetch(self, row):
        with open(self.documents, "rb") as f:
            f.seek(row * self.record)
            return f.read(self.record)
