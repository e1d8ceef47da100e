"""Shards of image/caption records, written as the crawler left them."""
import json
import os
import zlib

import numpy as np

CAPTIONS = ["a dog on a beach", "two cups of coffee", "the old town hall at night", "a red bicycle"]


def write_shards(root, shards, records, seed):
    rng = np.random.default_rng(seed)
    paths = []
    for s in range(shards):
        path = os.path.join(root, f"shard_{s:03d}.jsonl")
        with open(path, "w") as f:
            for i in range(records):
                image = rng.integers(0, 255, size=(32, 32, 3), dtype=np.uint8)
                blob = zlib.compress(image.tobytes()).hex()
                draw = rng.random()
                record = {"__key__": f"{s:03d}/{i:05d}", "image": blob, "shape": [32, 32, 3],
                          "caption": CAPTIONS[int(rng.integers(len(CAPTIONS)))]}
                if draw < 0.02:
                    record["image"] = blob[: len(blob) // 3 * 2]
                elif draw < 0.03:
                    record["shape"] = [32, 31, 3]
                elif draw < 0.04:
                    del record["caption"]
                f.write(json.dumps(record) + "\n")
        paths.append(path)
    return paths
