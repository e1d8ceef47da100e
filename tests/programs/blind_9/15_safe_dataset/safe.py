import functools


class memoize:
    """Remembers the result of a method by its arguments."""

    def __init__(self, func):
        self.func = func
        self.cache = {}

    def __get__(self, obj, objtype=None):
        return functools.partial(self, obj)

    def __call__(self, obj, *args):
        if args not in self.cache:
            self.cache[args] = self.func(obj, *args)
        return self.cache[args]


class SafeDataset:
    """Skips over examples that cannot be loaded."""

    def __init__(self, dataset, retries=5):
        self.dataset = dataset
        self.retries = retries

    def __len__(self):
        return len(self.dataset)

    @memoize
    def _load(self, index):
        try:
            return self.dataset[index]
        except ValueError:
            return None

    def __getitem__(self, index):
        for k in range(self.retries):
            item = self._load((index + k) % len(self.dataset))
            if item is not None:
                return item
        raise RuntimeError(f"no valid example near {index}")
