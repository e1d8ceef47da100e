"""Sharded utterance stream with a shuffle buffer, one set of shards per loader worker."""
import logging
import random
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

log = logging.getLogger(__name__)

N_PHONES = 40
FEATS = 40


def write_shards(root: Path, name: str, n_shards: int, per_shard: int, max_frames: int, seed: int):
    """Writes n_shards .npz files of random utterances and returns their paths."""
    root.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    paths = []
    for k in range(n_shards):
        path = root / f"{name}-{k:03d}.npz"
        if not path.exists():
            frames = rng.integers(max_frames // 2, max_frames, size=per_shard)
            np.savez(
                path,
                frames=frames,
                feats=rng.standard_normal((per_shard, max_frames, FEATS), dtype=np.float32),
                phones=rng.integers(0, N_PHONES, size=(per_shard, max_frames)),
            )
        paths.append(path)
    return paths


class UtteranceStream(IterableDataset):
    """Endless stream of utterances; an epoch is counted in steps by the trainer."""

    def __init__(self, shards, seed=0, buffer_size=32, snr_db=20.0):
        super().__init__()
        self.shards = list(shards)
        self.seed = seed
        self.buffer_size = buffer_size
        self.snr_db = snr_db

    def _my_shards(self):
        info = get_worker_info()
        if info is None:
            return list(self.shards), self.seed
        return self.shards[info.id :: info.num_workers], self.seed + 7919 * info.id

    def _read(self, path):
        with np.load(path) as z:
            frames, feats, phones = z["frames"], z["feats"], z["phones"]
        for i in range(len(frames)):
            yield feats[i], phones[i], int(frames[i])

    def _augment(self, feats, rng):
        noise = rng.standard_normal(feats.shape, dtype=np.float32)
        return feats + noise * 10 ** (-self.snr_db / 20)

    def __iter__(self):
        shards, seed = self._my_shards()
        order = random.Random(seed)
        rng = np.random.default_rng(seed)
        buffer = []
        while True:
            order.shuffle(shards)
            for path in shards:
                for item in self._read(path):
                    if len(buffer) < self.buffer_size:
                        buffer.append(item)
                        continue
                    k = order.randrange(self.buffer_size)
                    feats, phones, n = buffer[k]
                    buffer[k] = item
                    yield (
                        torch.from_numpy(self._augment(feats, rng)),
                        torch.from_numpy(phones),
                        n,
                    )
