"""Evaluation server: answers positions from the cache or with the net."""
import collections
import logging
import time

import torch
from torch import nn

log = logging.getLogger("evaluator")
SIZE = 19


class TinyNet(nn.Module):
    def __init__(self, channels=24):
        super().__init__()
        self.trunk = nn.Sequential(nn.Conv2d(3, channels, 3, padding=1), nn.ReLU(),
                                   nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU())
        self.policy = nn.Conv2d(channels, 1, 1)
        self.value = nn.Linear(channels, 1)

    def forward(self, planes):
        trunk = self.trunk(planes)
        return trunk, self.policy(trunk).flatten(1).softmax(1), torch.tanh(self.value(trunk.mean((2, 3))))


class EvalCache:
    """Net outputs by position hash, least recently used ones go first when it is full."""

    def __init__(self, megabytes):
        self.limit = megabytes * 2 ** 20
        self.entries = collections.OrderedDict()
        self.bytes = 0
        self.hits = self.misses = self.evicted = 0

    @staticmethod
    def _size(entry):
        return sum(t.numel() * t.element_size() for t in entry) + 400

    def get(self, key):
        entry = self.entries.get(key)
        if entry is None:
            self.misses += 1
        else:
            self.hits += 1
            self.entries.move_to_end(key)
        return entry

    def put(self, key, entry):
        self.entries[key] = entry
        self.bytes += self._size(entry)
        while self.bytes > self.limit:
            _, old = self.entries.popitem(last=False)
            self.bytes -= self._size(old)
            self.evicted += 1


class Evaluator:
    def __init__(self, cache_megabytes):
        torch.manual_seed(0)
        torch.set_num_threads(1)
        self.net = TinyNet().eval()
        self.cache = EvalCache(cache_megabytes)
        self.reported = time.monotonic()

    @torch.inference_mode()
    def evaluate(self, positions):
        answers = {}
        todo = []
        for key, planes in positions:
            entry = self.cache.get(key)
            if entry is None:
                todo.append((key, planes))
            else:
                answers[key] = (int(entry[1].argmax()), float(entry[2]))
        if todo:
            batch = torch.stack([torch.as_tensor(planes) for _, planes in todo]).float()
            outputs = self.net(batch)
            for row, (key, _) in enumerate(todo):
                entry = tuple(part[row].clone() for part in outputs)
                self.cache.put(key, entry)
                answers[key] = (int(entry[1].argmax()), float(entry[2]))
        if time.monotonic() - self.reported > 5:
            self.reported = time.monotonic()
            c = self.cache
            log.info("cache %d of %d MB (%d%%), %d positions, hits %d, misses %d, evicted %d", c.bytes >> 20,
                     c.limit >> 20, 100 * c.bytes // c.limit, len(c.entries), c.hits, c.misses, c.evicted)
        return answers
