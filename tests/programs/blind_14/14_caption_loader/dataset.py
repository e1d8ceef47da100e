import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

from sample_loader import sample_loader
from skip import SkipSample


class CrudeDataset(IterableDataset):
    def __init__(self, paths, batch_size, seed):
        self.paths = paths
        self.batch_size = batch_size
        self.seed = seed

    def _samples(self, worker, workers):
        rng = np.random.default_rng(self.seed + worker)
        while True:
            for path in rng.permutation(self.paths[worker::workers]):
                with open(path) as f:
                    for line in f:
                        try:
                            yield sample_loader(line, rng)
                        except SkipSample:
                            continue

    def __iter__(self):
        info = get_worker_info()
        batch = []
        for sample in self._samples(info.id, info.num_workers):
            batch.append(sample)
            if len(batch) == self.batch_size:
                yield {"image": torch.from_numpy(np.stack([b["image"] for b in batch])),
                       "caption": torch.from_numpy(np.stack([b["caption"] for b in batch]))}
                batch = []
