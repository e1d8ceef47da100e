"""Chunks of compressed text, as they come from the crawl."""
import gzip
import os
import random
import time

WORDS = [a + b + c for a in "bdfgklmnprst" for b in "aeiou" for c in ("", "n", "r", "s", "la", "mo")]


def write_chunks(folder, n_chunks, lines_per_chunk, seed=0):
    rng = random.Random(seed)
    paths = []
    for c in range(n_chunks):
        lines = [" ".join(rng.choices(WORDS, k=24)) for _ in range(lines_per_chunk)]
        if c == n_chunks // 2:
            lines[lines_per_chunk // 3] = "caf\u00e9 " + lines[lines_per_chunk // 3]
        encoding = "latin-1" if c == n_chunks // 2 else "utf-8"
        path = os.path.join(folder, f"chunk_{c:04d}.gz")
        with gzip.open(path, "wb", compresslevel=1) as f:
            f.write("\n".join(lines).encode(encoding))
        paths.append(path)
    return paths


def read_chunk(path):
    with gzip.open(path, "rb") as f:
        text = f.read()
    for line in text.splitlines():
        yield line.decode("utf-8")


class Tokenizer:
    def __init__(self):
        self.ids = {w: i + 2 for i, w in enumerate(WORDS)}

    @property
    def size(self):
        return len(self.ids) + 2

    def encode(self, line):
        time.sleep(0.0002)
        return [1] + [self.ids.get(w, 0) for w in line.split()]
