"""Data loaders for distributed runs: the main process reads and sends slices to the others."""
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, IterableDataset


class DataLoaderDispatcher(DataLoader):
    """Iterates the dataset on process 0 only and gives every process its slice of each batch."""

    def __init__(self, dataset, rank, world_size, **kwargs):
        super().__init__(dataset, **kwargs)
        self.rank, self.world_size = rank, world_size

    def _fetch_batches(self, iterator):
        info, batch = [None, True], None
        if self.rank == 0:
            try:
                parts = [next(iterator) for _ in range(self.world_size)]
                batch = torch.cat(parts)
                info = [(tuple(batch.shape), batch.dtype), False]
            except StopIteration:
                info = [None, True]
        dist.broadcast_object_list(info, src=0)
        return batch, info

    def __iter__(self):
        main_iterator = None
        if self.rank == 0:
            main_iterator = super().__iter__()
        while True:
            batch, (spec, stop) = self._fetch_batches(main_iterator)
            if stop:
                return
            if self.rank != 0:
                batch = torch.empty(spec[0], dtype=spec[1])
            dist.broadcast(batch, src=0)
            yield batch.chunk(self.world_size)[self.rank]


def prepare_data_loader(dataset, batch_size, rank, world_size, shuffle=False):
    if isinstance(dataset, IterableDataset):
        return DataLoaderDispatcher(dataset, rank, world_size, batch_size=batch_size, drop_last=True)
    sampler = torch.utils.data.DistributedSampler(dataset, world_size, rank, shuffle=shuffle)
    return DataLoader(dataset, batch_size, sampler=sampler, drop_last=True)
