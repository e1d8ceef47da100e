from collections import OrderedDict

import torch


class PrefixCache:
    """Keys and values of prompt prefixes on the GPU, least recently used out first."""

    def __init__(self, limit_mb):
        self.limit = limit_mb * 2**20
        self.entries = OrderedDict()
        self.bytes = self.hits = self.misses = self.evictions = 0

    @staticmethod
    def size(kv):
        return sum(t.numel() * t.element_size() for layer in kv for t in layer)

    def get(self, key):
        kv = self.entries.get(key)
        if kv is None:
            self.misses += 1
            return None
        self.entries.move_to_end(key)
        self.hits += 1
        return kv

    def put(self, key, kv):
        need = self.size(kv)
        while self.entries and self.bytes + need > self.limit:
            _, old = self.entries.popitem(last=False)
            self.bytes -= self.size(old)
            self.evictions += 1
        self.entries[key] = kv
        self.bytes += need

    def stats(self):
        return (
            f"{len(self.entries)} prefixes, {self.bytes >> 20} MB of {self.limit >> 20} MB, "
            f"{self.hits} hits, {self.misses} misses, {self.evictions} evictions"
        )


def concat(kv, new):
    return [(torch.cat([k, nk], dim=2), torch.cat([v, nv], dim=2)) for (k, v), (nk, nv) in zip(kv, new)]
