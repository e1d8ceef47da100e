import os
import time

import numpy as np

SHAPE = (2, 32, 64, 64)


def unpack_dataset(folder, cases):
    """Write <case>.npy for every case that is not unpacked yet; return the identifiers."""
    os.makedirs(folder, exist_ok=True)
    identifiers = [f"case_{i:03d}" for i in range(cases)]
    for i, name in enumerate(identifiers):
        path = os.path.join(folder, name + ".npy")
        if os.path.isfile(path):
            continue
        rng = np.random.default_rng(i)
        volume = rng.standard_normal(SHAPE).astype(np.float32)
        volume[1] = volume[0] > 0.5
        np.save(path, volume)
    return identifiers


class SliceLoader:
    """Endless 2d batches; every process walks through its own share of the cases."""

    def __init__(self, folder, identifiers, batch_size):
        self.folder, self.identifiers, self.batch_size = folder, identifiers, batch_size
        self.num_threads, self.thread_id = 1, 0

    def set_num_threads(self, n):
        self.num_threads = n

    def set_thread_id(self, i):
        self.thread_id = i

    def __iter__(self):
        share = self.identifiers[self.thread_id::self.num_threads]
        while True:
            for start in range(0, len(share), self.batch_size):
                yield self.generate_train_batch(share[start:start + self.batch_size])

    def generate_train_batch(self, names):
        data = np.zeros((len(names), 1, *SHAPE[2:]), dtype=np.float32)
        seg = np.zeros((len(names), *SHAPE[2:]), dtype=np.int64)
        for j, name in enumerate(names):
            volume = np.load(os.path.join(self.folder, name + ".npy"), mmap_mode="r")
            z = np.random.randint(SHAPE[1])
            data[j, 0] = volume[0, z]
            seg[j] = volume[1, z]
        return {"data": data, "seg": seg, "keys": names}


def mirror_and_noise(batch):
    for axis in (2, 3):
        if np.random.rand() < 0.5:
            batch["data"] = np.flip(batch["data"], axis)
            batch["seg"] = np.flip(batch["seg"], axis - 1)
    noise = np.random.normal(0, 0.1, batch["data"].shape).astype(np.float32)
    batch["data"] = np.ascontiguousarray(batch["data"] + noise)
    batch["seg"] = np.ascontiguousarray(batch["seg"])
    time.sleep(1.2)
    return batch
