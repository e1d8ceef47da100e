"""Minimal WebDataset: pipelines over tar shards."""
import io
import itertools
import os
import random
import tarfile

import numpy as np
import torch.distributed as dist
from torch.utils.data import IterableDataset, get_worker_info


class SimpleShardList:
    def __init__(self, urls, shuffle=False):
        self.urls = sorted(urls)
        self.shuffle = shuffle

    def __call__(self, _=None):
        urls = list(self.urls)
        if self.shuffle:
            random.shuffle(urls)
        yield from urls


def split_by_node(src):
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if dist.is_available() and dist.is_initialized():
        rank, world = dist.get_rank(), dist.get_world_size()
    yield from itertools.islice(src, rank, None, world)


def split_by_worker(src):
    info = get_worker_info()
    if info is None:
        yield from src
    else:
        yield from itertools.islice(src, info.id, None, info.num_workers)


def tarfile_to_samples(src):
    for url in src:
        with tarfile.open(url) as tar:
            sample = {}
            for member in tar:
                key, _, ext = member.name.partition(".")
                if sample and sample["__key__"] != key:
                    yield sample
                    sample = {}
                sample["__key__"] = key
                sample[ext] = tar.extractfile(member).read()
            if sample:
                yield sample


def decode(src):
    for sample in src:
        yield np.load(io.BytesIO(sample["npy"])), int(sample["cls"])


class WebPipeline(IterableDataset):
    def __init__(self, *stages):
        self.stages = stages
        self.repetitions = 1

    def repeat(self):
        self.repetitions = None
        return self

    def _run(self):
        src = self.stages[0]()
        for stage in self.stages[1:]:
            src = stage(src)
        return src

    def __iter__(self):
        epochs = itertools.count() if self.repetitions is None else range(self.repetitions)
        for _ in epochs:
            for sample in self._run():
                yield sample


def write_shards(folder, prefix, shards, per_shard, seed, dim=256):
    rng = np.random.default_rng(seed)
    urls = []
    for s in range(shards):
        url = os.path.join(folder, f"{prefix}-{s:06d}.tar")
        with tarfile.open(url, "w") as tar:
            for i in range(per_shard):
                x = rng.standard_normal(dim).astype(np.float32)
                buf = io.BytesIO()
                np.save(buf, x)
                for ext, data in (("npy", buf.getvalue()), ("cls", str(int(x[:8].sum() > 0)).encode())):
                    member = tarfile.TarInfo(f"{prefix}{s}_{i:05d}.{ext}")
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))
        urls.append(url)
    return urls
