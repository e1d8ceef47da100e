import json
import logging
import os
import random
import zlib

log = logging.getLogger("compact")


class ShardFeed:
    def __init__(self, shards, rows=3000):
        self.shards = shards
        self.rows = rows

    def __iter__(self):
        rng = random.Random(2)
        for n in range(self.shards):
            stamp = "ts" if n < 8 else "timestamp"
            yield {
                "shard": n,
                "rows": [{stamp: n * 1000 + i, "user": rng.randint(1, 500), "ms": rng.random()} for i in range(self.rows)],
            }


def compact(shard, out_dir):
    rows = sorted(shard["rows"], key=lambda r: r["ts"])
    by_user = {}
    for row in rows:
        by_user.setdefault(row["user"], []).append((row["ts"], row["ms"]))
    blob = zlib.compress(json.dumps(by_user).encode(), 6)
    path = os.path.join(out_dir, f"shard-{shard['shard']:05d}.z")
    with open(path, "wb") as f:
        f.write(blob)
    log.info("wrote %s (%d bytes)", os.path.basename(path), len(blob))
