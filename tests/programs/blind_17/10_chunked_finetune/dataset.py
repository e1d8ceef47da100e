import os
import random
import re
import time

import numpy as np
import torch

PIECE = re.compile(r"[a-z]{1,4}")
LENGTH = 64


class ChunkPreparer:
    """Cleans, deduplicates and tokenises one chunk of the corpus and writes it to the cache."""

    def __init__(self, cache_dir, vocab, docs_per_chunk):
        self.cache_dir = cache_dir
        self.vocab = vocab
        self.docs_per_chunk = docs_per_chunk
        rng = random.Random(0)
        self.lexicon = ["".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(rng.randint(3, 11)))
                        for _ in range(3000)]

    def documents(self, chunk):
        rng = random.Random(1000 + chunk)
        for _ in range(self.docs_per_chunk):
            label = rng.randrange(8)
            words = rng.choices(self.lexicon[label * 300: label * 300 + 900], k=rng.randint(700, 1300))
            yield " ".join(words), label

    def signature(self, text, permutations=24):
        """MinHash signature of the document's word pairs."""
        words = text.split()
        shingles = np.fromiter((sum(map(ord, a)) * 8191 + sum(map(ord, b)) for a, b in zip(words, words[1:])),
                               dtype=np.int64)
        return tuple(int((shingles * (2 * p + 1) + p * 7919).__mod__(1000003).min()) for p in range(permutations))

    def tokenize(self, text):
        ids = []
        for word in text.split():
            for piece in PIECE.findall(word):
                value = 0
                for char in piece:
                    value = (value * 31 + ord(char)) % self.vocab
                ids.append(value)
        return ids[:LENGTH] + [0] * max(0, LENGTH - len(ids))

    def prepare(self, chunk, log):
        seen, rows, labels = set(), [], []
        last = time.monotonic()
        for i, (text, label) in enumerate(self.documents(chunk), 1):
            signature = self.signature(text)
            if signature in seen:
                continue
            seen.add(signature)
            rows.append(self.tokenize(text))
            labels.append(label)
            if time.monotonic() - last > 3:
                last = time.monotonic()
                log.info("chunk %d: %d/%d documents tokenized", chunk, i, self.docs_per_chunk)
        path = os.path.join(self.cache_dir, f"chunk_{chunk:03d}.npz")
        np.savez(path + ".tmp.npz", tokens=np.asarray(rows, dtype=np.int32), labels=np.asarray(labels))
        os.replace(path + ".tmp.npz", path)


def load_chunk(cache_dir, chunk):
    with np.load(os.path.join(cache_dir, f"chunk_{chunk:03d}.npz")) as data:
        return torch.from_numpy(data["tokens"]).long(), torch.from_numpy(data["labels"]).long()
