"""Node embeddings in shared memory, split into shards with one lock each."""
from contextlib import ExitStack

import torch


class ShardedStore:
    def __init__(self, ctx, nodes, shards, dim):
        self.nodes, self.shards, self.dim = nodes, shards, dim
        self.tables = [(0.1 * torch.randn(nodes // shards + 1, dim)).share_memory_() for _ in range(shards)]
        self.index_locks = [ctx.Lock() for _ in range(shards)]

    def shard_of(self, node):
        return node % self.shards

    def rows(self, nodes):
        return torch.stack([self.tables[n % self.shards][n // self.shards] for n in nodes])

    def write(self, nodes, values):
        for n, v in zip(nodes, values):
            self.tables[n % self.shards][n // self.shards] = v

    def transaction(self, nodes):
        return Transaction(self, nodes)


class Transaction:
    """Reads and writes the rows of one walk while their shards are held."""

    def __init__(self, store, nodes):
        self.store = store
        self.nodes = nodes
        self.keys = list(dict.fromkeys(store.shard_of(n) for n in nodes))
        self.stack = ExitStack()

    def __enter__(self):
        self.stack.__enter__()
        for key in self.keys:
            self.stack.enter_context(self.store.index_locks[key])
        self.values = self.store.rows(self.nodes)
        return self

    def commit(self, values):
        self.store.write(self.nodes, values)

    def __exit__(self, *exc):
        return self.stack.__exit__(*exc)
