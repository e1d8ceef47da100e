import numpy as np


class Task:
    def __init__(self, **params):
        self.params = params
        self.task_id = type(self).__name__ + "_" + "_".join(str(v) for v in params.values())

    def run(self):
        raise NotImplementedError


class AggregateStreams(Task):
    """Sums the plays of a region by artist."""

    def run(self):
        rng = np.random.default_rng(abs(hash(self.task_id)) % 2**32)
        total = np.zeros(5000)
        for _ in range(25):
            artists = rng.zipf(1.4, size=20000) % 5000
            total += np.bincount(artists, minlength=5000)
        return int(total.argmax())


class TopArtists(AggregateStreams):
    """Ranks the artists of a region."""


def nightly_tasks(date, regions):
    for kind in (AggregateStreams, TopArtists):
        for r in range(regions):
            yield kind(date=date, region=f"r{r:02d}")
