"""Click features for the ranker. The vocabulary statistics are computed once, when the module is loaded."""
import math
import os
import zlib
from concurrent.futures import ProcessPoolExecutor

N_SHARDS = 6
DOCS_PER_SHARD = 400


def _tokens(doc):
    seed = zlib.crc32(b"doc%d" % doc)
    for _ in range(60):
        seed = (1103515245 * seed + 12345) & 0x7FFFFFFF
        yield seed % 5000


def count_shard(shard):
    counts = {}
    for doc in range(shard * DOCS_PER_SHARD, (shard + 1) * DOCS_PER_SHARD):
        for tok in set(_tokens(doc)):
            counts[tok] = counts.get(tok, 0) + 1
    return counts


def _document_frequencies():
    total = {}
    with ProcessPoolExecutor(max_workers=min(3, os.cpu_count() or 1)) as pool:
        for counts in pool.map(count_shard, range(N_SHARDS)):
            for tok, n in counts.items():
                total[tok] = total.get(tok, 0) + n
    return total


DF = _document_frequencies()
N_DOCS = N_SHARDS * DOCS_PER_SHARD


def vectorise(doc, dim=64):
    vec = [0.0] * dim
    for tok in _tokens(doc):
        idf = math.log((1 + N_DOCS) / (1 + DF.get(tok, 0)))
        vec[tok % dim] += idf
    return vec
