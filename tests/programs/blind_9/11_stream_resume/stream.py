import itertools
import json

import torch
from torch.utils.data import IterableDataset, get_worker_info


class WordHasher:
    def __init__(self, buckets):
        self.buckets = buckets

    def __call__(self, text):
        return [sum(map(ord, w)) * 31 % self.buckets for w in text.split()]


class JsonlStream(IterableDataset):
    """Streams token windows; every worker reads its own file and can be resumed anywhere."""

    def __init__(self, paths, tokenise, window, length=24):
        self.paths, self.tokenise, self.window, self.length = paths, tokenise, window, length

    def _examples(self, path):
        with open(path) as f:
            for line in f:
                record = json.loads(line)
                yield self.tokenise(record["text"]), record["label"]

    def _window(self, path, start):
        return list(itertools.islice(self._examples(path), start, start + self.window))

    def __iter__(self):
        info = get_worker_info()
        path = self.paths[info.id if info else 0]
        position = 0
        while True:
            rows = self._window(path, position)
            if not rows:
                position = 0
                continue
            position += len(rows)
            g = torch.Generator().manual_seed(position)
            for i in torch.randperm(len(rows), generator=g).tolist():
                tokens, label = rows[i]
                tokens = (tokens + [0] * self.length)[: self.length]
                yield torch.tensor(tokens), label
