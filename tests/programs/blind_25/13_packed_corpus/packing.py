"""Packed corpus: one data file with the token rows back to back and one index file of (offset, rows)."""
import os
import zlib

import numpy as np

ENTRY = np.dtype([("offset", "<i8"), ("length", "<i4"), ("crc", "<u4")])
SKIPPED = np.iinfo(np.int64).max


def documents(count, vocab, mirrored, rng):
    """Synthetic sources; crawled ones contain the same page more than once."""
    seen = []
    for _ in range(count):
        if seen and rng.random() < mirrored:
            yield seen[int(rng.integers(len(seen)))]
            continue
        length = int(rng.geometric(1 / 400)) + 24
        tokens = ((np.arange(length) * int(rng.integers(1, 7)) + rng.integers(vocab)) % vocab).astype(np.int32)
        if mirrored:
            seen.append(tokens)
        yield tokens


def pack(root, name, docs, vocab, mirrored, seed):
    """Write one shard. Repeated documents stay in the index (ids must not move) but get no data."""
    rng = np.random.default_rng(seed)
    index = np.zeros(docs, dtype=ENTRY)
    known = set()
    with open(os.path.join(root, name + ".bin"), "wb") as f:
        for i, tokens in enumerate(documents(docs, vocab, mirrored, rng)):
            crc = zlib.crc32(tokens.tobytes())
            if mirrored and crc in known:
                index[i] = (SKIPPED, len(tokens), crc)
                continue
            known.add(crc)
            index[i] = (f.tell(), len(tokens), crc)
            f.write(tokens.tobytes())
    index.tofile(os.path.join(root, name + ".idx"))
    return int((index["offset"] == SKIPPED).sum())
