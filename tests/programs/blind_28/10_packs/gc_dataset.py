"""Dataset wrappers of the loader."""
import gc

from torch.utils.data import IterableDataset


class GcDataset(IterableDataset):
    """Collects cyclic references that decoders leave behind, so that the workers' memory stays flat."""

    def __init__(self, dataset: IterableDataset, every_n_iter: int = 1, freeze: bool = False):
        self.dataset = dataset
        self.every_n_iter = every_n_iter
        self.freeze = freeze

    def __iter__(self):
        gc.disable()
        if self.freeze:
            gc.collect()
            gc.freeze()
        for n, sample in enumerate(self.dataset, start=1):
            yield sample
            if n % self.every_n_iter == 0:
                gc.collect()
