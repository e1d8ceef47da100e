"""Streaming data set that is read shard by shard and can be split over nodes and loader workers."""
import copy

from torch.utils.data import IterableDataset as TorchIterableDataset
from torch.utils.data import get_worker_info


class ExamplesIterable:
    def __init__(self, generate, shards):
        self.generate = generate
        self.shards = list(shards)

    def __iter__(self):
        for shard in self.shards:
            yield from self.generate(shard)

    @property
    def n_shards(self):
        return len(self.shards)

    def shard_data_sources(self, index, num):
        return ExamplesIterable(self.generate, self.shards[index::num])


class MappedExamplesIterable:
    def __init__(self, ex_iterable, function):
        self.ex_iterable = ex_iterable
        self.function = function

    def __iter__(self):
        for example in self.ex_iterable:
            yield self.function(example)

    @property
    def n_shards(self):
        return self.ex_iterable.n_shards

    def shard_data_sources(self, index, num):
        return MappedExamplesIterable(self.ex_iterable.shard_data_sources(index, num), self.function)


class StepExamplesIterable:
    def __init__(self, ex_iterable, step, offset):
        self.ex_iterable = ex_iterable
        self.step = step
        self.offset = offset

    def __iter__(self):
        for i, example in enumerate(self.ex_iterable):
            if i % self.step == self.offset:
                yield example

    @property
    def n_shards(self):
        return self.ex_iterable.n_shards

    def shard_data_sources(self, index, num):
        return StepExamplesIterable(self.ex_iterable.shard_data_sources(index, num), self.step, self.offset)


class StreamingDataset(TorchIterableDataset):
    def __init__(self, ex_iterable, distributed=None):
        self.ex_iterable = ex_iterable
        self.distributed = distributed

    @classmethod
    def from_generator(cls, generate, shards):
        return cls(ExamplesIterable(generate, shards))

    def map(self, function):
        return StreamingDataset(MappedExamplesIterable(self.ex_iterable, function), self.distributed)

    def _prepare(self):
        ex_iterable = self.ex_iterable
        if self.distributed is not None:
            rank, world_size = self.distributed
            if ex_iterable.n_shards % world_size == 0:
                ex_iterable = ex_iterable.shard_data_sources(rank, world_size)
            else:
                ex_iterable = StepExamplesIterable(ex_iterable, step=world_size, offset=rank)
        worker = get_worker_info()
        if worker is not None and worker.num_workers > 1:
            ex_iterable = ex_iterable.shard_data_sources(worker.id, worker.num_workers)
        return ex_iterable

    def __iter__(self):
        yield from self._prepare()


def split_dataset_by_node(dataset, rank, world_size):
    out = copy.copy(dataset)
    out.distributed = (rank, world_size)
    return out
