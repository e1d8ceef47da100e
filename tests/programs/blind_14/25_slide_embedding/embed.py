"""Embed the tiles of all slides; the features of a slide go into one file that all ranks fill."""
import logging
import os
import time

import numpy as np

from tiles import SLIDES, SlideTiles


class Encoder:
    def __init__(self, tile_size, dim, seed=0):
        rng = np.random.default_rng(seed)
        n = (tile_size // 8) ** 2 * 3
        self.weight = (rng.normal(size=(n, dim)) / np.sqrt(n)).astype(np.float32)

    def __call__(self, tile):
        s = tile.shape[0] // 8
        pooled = tile.reshape(s, 8, s, 8, 3).mean((1, 3)).astype(np.float32) / 255.0
        return np.tanh(pooled.reshape(-1) @ self.weight)


def embed_slides(rank, world_size, args, work_dir, barrier, done):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s rank{rank} %(message)s", force=True)
    encoder = Encoder(args.tile_size, args.dim)
    feature_path = os.path.join(work_dir, "features.npy")
    for number in range(args.rounds * len(SLIDES)):
        name, n_tiles = SLIDES[number % len(SLIDES)]
        slide = SlideTiles(name, n_tiles, args.tile_size)
        if rank == 0:
            features = np.lib.format.open_memmap(feature_path, mode="w+", dtype=np.float32,
                                                 shape=(n_tiles, args.dim))
        barrier.wait()
        if rank != 0:
            features = np.lib.format.open_memmap(feature_path, mode="r+")
        t0 = time.monotonic()
        shard = slide.contour_shards(world_size)[rank]
        for i in shard:
            levels = slide.pyramid_levels(i)
            value = np.mean([encoder(slide.read(int(i) * 8 + k)) for k in range(levels)], axis=0)
            time.sleep(args.read_latency * levels)
            features[i] = value
        features.flush()
        logging.info("%s: %d tiles in %.1f s", name, len(shard), time.monotonic() - t0)
        done.put((rank, name))
