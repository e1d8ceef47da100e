"""Batches of utterances of similar length."""
import random

from torch.utils.data import Sampler

from audio import load_audio


class SmartBatchingSampler(Sampler):
    """Sorts the utterances by length, cuts them in bins and shuffles the bins."""

    def __init__(self, dataset, batch_size, batches_per_epoch=None, seed=0):
        self.dataset = dataset
        self.batch_size = batch_size
        self.batches_per_epoch = batches_per_epoch
        self.rng = random.Random(seed)

    def __len__(self):
        total = -(-len(self.dataset) // self.batch_size)
        return min(total, self.batches_per_epoch or total)

    def _sorted_indices(self):
        lengths = []
        for index, path in enumerate(self.dataset.audio_paths):
            signal = load_audio(path, del_silence=self.dataset.del_silence)
            lengths.append((len(signal), index))
        return [index for _, index in sorted(lengths)]

    def __iter__(self):
        indices = self._sorted_indices()
        bins = [indices[i:i + self.batch_size] for i in range(0, len(indices), self.batch_size)]
        self.rng.shuffle(bins)
        yield from bins[:len(self)]
