import numpy as np


class PageError(ValueError):
    pass


class Scanner:
    """Stand-in for the scanning service: grey pages with print, some of them damaged."""

    def __init__(self, seed, height=1100, width=780, damaged=0.3):
        self.rng = np.random.default_rng(seed)
        self.shape = (height, width)
        self.damaged = damaged
        self.template = self.rng.integers(180, 255, self.shape, dtype=np.uint8)

    def fetch(self):
        page = np.roll(self.template, int(self.rng.integers(0, self.shape[0])), axis=0)
        first = self.rng.random() < self.damaged
        if first:
            page[:] = 250
        return page.tobytes()


def decode(blob, shape):
    page = np.frombuffer(blob, dtype=np.uint8).reshape(shape)
    return page.astype(np.float32) / 255.0


def text_lines(page, minimum=0.02):
    """Row profile of the page; raises if nothing is printed on it."""
    profile = page.std(axis=1)
    if float(profile.max()) < minimum:
        raise PageError("no text lines found")
    return profile
