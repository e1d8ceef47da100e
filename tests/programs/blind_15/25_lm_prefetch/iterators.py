"""Checkpointable iterators for endless training data."""
import collections
import multiprocessing
import random


class InfinitePermutationSource:
    def __init__(self, items, seed=0):
        self.items = list(items)
        self.random = random.Random(seed)

    def __iter__(self):
        while True:
            order = list(self.items)
            self.random.shuffle(order)
            yield from order


class SelectManyIterator:
    def __init__(self, source, collection_selector):
        self.source = source
        self.collection_selector = collection_selector

    def __iter__(self):
        for item in self.source:
            yield from self.collection_selector(item)


class MapIterator:
    def __init__(self, source, transform):
        self.source = source
        self.transform = transform

    def __iter__(self):
        for item in self.source:
            yield self.transform(item)


class BufferedShuffleIterator:
    def __init__(self, source, buffer_size, seed=0):
        self.source = source
        self.buffer_size = buffer_size
        self.random = random.Random(seed)

    def __iter__(self):
        buffer = []
        for item in self.source:
            if len(buffer) < self.buffer_size:
                buffer.append(item)
                continue
            i = self.random.randrange(self.buffer_size)
            buffer[i], item = item, buffer[i]
            yield item


class FixedBatchIterator:
    def __init__(self, source, batch_size):
        self.source = source
        self.batch_size = batch_size

    def __iter__(self):
        batch = []
        for item in self.source:
            batch.append(item)
            if len(batch) == self.batch_size:
                yield batch
                batch = []


class ForkPrefetchIterator:
    """Runs its source in a separate process and keeps some items ready."""

    def __init__(self, source, buffer_size):
        self.source = source
        self.buffer_size = buffer_size
        context = multiprocessing.get_context("fork")
        self._queue = context.Queue(maxsize=buffer_size)
        self._local = collections.deque()
        self._process = context.Process(target=self._prefetch_process_fn, name="prefetch", daemon=True)
        self._process.start()

    def _prefetch_process_fn(self):
        for item in self.source:
            self._queue.put(item)

    def __iter__(self):
        return self

    def __next__(self):
        return self._queue.get()

    def close(self):
        if self._process.is_alive():
            self._process.terminate()
        self._process.join()
