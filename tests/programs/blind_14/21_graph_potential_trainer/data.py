"""Atomic structures and a small multi-process loader."""
import multiprocessing as mp
import queue

import numpy as np


class StructureDataset:
    def __init__(self, size, atoms, cutoff, seed=0):
        self.size, self.atoms, self.cutoff, self.seed = size, atoms, cutoff, seed

    def __len__(self):
        return self.size

    def __getitem__(self, i):
        rng = np.random.default_rng(self.seed + i)
        pos = rng.uniform(0, 6.0, (self.atoms, 3)).astype(np.float32)
        species = rng.integers(0, 8, self.atoms)
        d = np.linalg.norm(pos[:, None] - pos[None], axis=-1)
        adjacency = np.where((d < self.cutoff) & (d > 0), np.exp(-d), 0).astype(np.float32)
        energy = np.float32(adjacency.sum() / self.atoms)
        return species, adjacency, energy


def collate(samples):
    species, adjacency, energy = zip(*samples)
    return np.stack(species), np.stack(adjacency), np.stack(energy)


def worker_fn(dataset, index_queue, output_queue):
    while True:
        try:
            index = index_queue.get(timeout=0)
        except queue.Empty:
            continue
        if index is None:
            break
        output_queue.put((index, dataset[index]))


class ParallelLoader:
    def __init__(self, dataset, batch_size, num_workers, prefetch_batches=2, shuffle_seed=0):
        self.dataset = dataset
        self.batch_size = batch_size
        self.num_workers = num_workers
        self.prefetch_batches = prefetch_batches
        self.rng = np.random.default_rng(shuffle_seed)
        self.output_queue = mp.Queue()
        self.index_queues = []
        self.workers = []
        self.worker_cycle = 0
        for i in range(num_workers):
            index_queue = mp.Queue()
            w = mp.Process(target=worker_fn, args=(dataset, index_queue, self.output_queue),
                           name=f"loader-{i}", daemon=True)
            w.start()
            self.workers.append(w)
            self.index_queues.append(index_queue)

    def __iter__(self):
        self.order = self.rng.permutation(len(self.dataset)).tolist()
        self.position = 0
        self.requested = 0
        self.cache = {}
        self.prefetch()
        return self

    def prefetch(self):
        limit = min(self.position + self.prefetch_batches * self.batch_size, len(self.order))
        while self.requested < limit:
            self.index_queues[self.worker_cycle].put(self.order[self.requested])
            self.worker_cycle = (self.worker_cycle + 1) % self.num_workers
            self.requested += 1

    def get(self, index):
        while index not in self.cache:
            try:
                i, data = self.output_queue.get(timeout=0)
            except queue.Empty:
                continue
            self.cache[i] = data
        return self.cache.pop(index)

    def __next__(self):
        if self.position + self.batch_size > len(self.order):
            raise StopIteration
        self.prefetch()
        wanted = self.order[self.position:self.position + self.batch_size]
        self.position += self.batch_size
        return collate([self.get(i) for i in wanted])
