import glob
import os

import numpy as np
import torch


class RowGroupFile:
    """A file of token rows, cut into row groups as a parquet file would be."""

    def __init__(self, path, rows_per_group):
        self.rows = np.load(path, mmap_mode="r")
        self.rows_per_group = rows_per_group

    @property
    def num_row_groups(self):
        return -(-len(self.rows) // self.rows_per_group)

    def read(self, group):
        a = group * self.rows_per_group
        return np.asarray(self.rows[a:a + self.rows_per_group])


def write_split(root, name, files, rows, length, vocab, seed):
    rng = np.random.default_rng(seed)
    os.makedirs(os.path.join(root, name))
    for i in range(files):
        np.save(os.path.join(root, name, f"shard_{i:03d}.npy"), rng.integers(0, vocab, (rows, length), dtype=np.int32))


def document_batches(root, split, rank, world_size, rows_per_group):
    paths = sorted(glob.glob(os.path.join(root, split, "*.npy")))
    while True:
        for path in paths:
            pf = RowGroupFile(path, rows_per_group)
            for group in range(rank, pf.num_row_groups, world_size):
                yield pf.read(group)


def token_loader(root, split, rank, world_size, batch_size, rows_per_group=64):
    rows = []
    for batch in document_batches(root, split, rank, world_size, rows_per_group):
        rows.extend(batch)
        while len(rows) >= batch_size:
            chunk = torch.from_numpy(np.stack(rows[:batch_size]).astype(np.int64))
            del rows[:batch_size]
            yield chunk[:, :-1], chunk[:, 1:]
