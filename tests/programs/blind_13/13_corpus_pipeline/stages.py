import os
import random
import re
import time
import zlib
from collections import Counter

VOCABULARY = 32000


def raw_shards(count, folder):
    return [{"name": f"raw-{i:03d}", "seed": i, "documents": 14, "folder": folder} for i in range(count)]


def merged_shards(normalized, folder):
    """Documents are merged by source; the web crawl is by far the largest source."""
    sizes = {"crawl": 305, "books": 62, "code": 80, "forum": 44, "news": 52, "papers": 70, "wiki": 48}
    return [{"name": f"merged-{k}", "seed": i, "documents": v, "folder": folder,
             "inputs": [n["path"] for n in normalized]} for i, (k, v) in enumerate(sizes.items())]


def documents(spec, rate=4.0):
    """Reads the documents of a shard from the store, which serves a few per second and reader."""
    rng = random.Random(spec["seed"])
    due = time.monotonic()
    for _ in range(spec["documents"]):
        yield " ".join(f"w{rng.randint(0, 4000)}" for _ in range(rng.randint(400, 1600)))
        due += 1.0 / rate
        time.sleep(max(0.0, due - time.monotonic()))


def normalize_shard(spec):
    path = os.path.join(spec["folder"], spec["name"] + ".txt")
    lines = 0
    with open(path, "w") as f:
        for doc in documents(spec):
            f.write(re.sub(r"\s+", " ", doc.lower()) + "\n")
            lines += 1
    return {"path": path, "documents": lines}


def tokenize_shard(spec):
    counts = Counter()
    for doc in documents(spec):
        counts.update(zlib.crc32(t.encode()) % VOCABULARY for t in re.findall(r"\w+", doc))
    return {"name": spec["name"], "tokens": sum(counts.values()), "types": len(counts)}
