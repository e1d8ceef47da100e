"""Latent parquet style data set; the file list and lengths are cached."""
import json
import logging
import os
import time

import torch
import torch.distributed as dist
from torch.utils.data import IterableDataset

log = logging.getLogger("latents")


def _scan(root, n_files=30):
    files = []
    for i in range(n_files):
        time.sleep(0.08)  # open the footer
        files.append({"path": f"{root}/part-{i:04d}.parquet", "length": 40 + i % 7})
    return files


def get_files_and_lengths(root):
    """Every rank gets the same list; rank 0 creates the cache when there is none."""
    cache = os.path.join(root, "map_style_cache.json")
    if os.path.exists(cache):
        with open(cache) as f:
            return json.load(f)
    if dist.get_rank() == 0:
        files = _scan(root)
        tmp = cache + ".tmp"
        with open(tmp, "w") as f:
            json.dump(files, f)
        os.rename(tmp, cache)
        log.info("cache written: %d files", len(files))
    dist.barrier()
    return get_files_and_lengths(root)


class LatentVideos(IterableDataset):
    def __init__(self, root, rank, world):
        self.files = get_files_and_lengths(root)[rank::world]

    def __iter__(self):
        while True:
            for f in self.files:
                for _ in range(f["length"]):
                    yield torch.randn(16, 8, 8)
