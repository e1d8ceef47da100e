"""Tar shards, a store that reads them sample by sample, and the dataset over both."""
import io
import logging
import tarfile
import time

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

log = logging.getLogger("shards")


def write_shards(root, sizes, features):
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(10, features)).astype(np.float16)
    urls = []
    for number, size in enumerate(sizes):
        path = root / f"train-{number:06d}.tar"
        with tarfile.open(path, "w") as tar:
            for i in range(size):
                label = int(rng.integers(10))
                x = centers[label] + rng.normal(size=features).astype(np.float16)
                data = label.to_bytes(1, "little") + x.tobytes()
                info = tarfile.TarInfo(f"{i:06d}.bin")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
        urls.append(str(path))
    return urls


class ShardStore:
    """Sequential reads from the bucket, each takes a round trip."""

    def __init__(self, latency):
        self.latency = latency

    def samples(self, url):
        with tarfile.open(url, "r|") as tar:
            for member in tar:
                time.sleep(self.latency)
                yield tar.extractfile(member).read()


class ShardDataset(IterableDataset):
    def __init__(self, urls, store):
        self.urls = urls
        self.store = store

    def my_shards(self):
        info = get_worker_info()
        if info is None:
            return self.urls
        urls = self.urls[info.id::info.num_workers]
        log.debug("worker %d has %d shards", info.id, len(urls))
        return urls

    def __iter__(self):
        for url in self.my_shards():
            for data in self.store.samples(url):
                x = torch.from_numpy(np.frombuffer(data[1:], dtype=np.float16).astype(np.float32))
                yield x, data[0]
