import functools
import logging

log = logging.getLogger("safe")


def memoize(fn):
    cache = fn.cache = {}

    @functools.wraps(fn)
    def wrapper(*args):
        if args not in cache:
            cache[args] = fn(*args)
        return cache[args]

    return wrapper


class SafeDataset:
    """Skips the samples that cannot be read."""

    def __init__(self, dataset):
        self.dataset = dataset
        self.bad = set()

    def __len__(self):
        return len(self.dataset)

    @memoize
    def __getitem__(self, idx):
        j = idx
        while True:
            try:
                return self.dataset[j % len(self.dataset)]
            except (OSError, ValueError) as e:
                log.debug("sample %d: %s", j, e)
                self.bad.add(j)
                j += 1
