import logging
from dataclasses import dataclass

import torch
from torch import nn

from pages import decode, text_lines

log = logging.getLogger("embed")


@dataclass
class Failure:
    page_id: str
    error: Exception

    def __str__(self):
        return f"{self.page_id}: {type(self.error).__name__}: {self.error}"


class PageNet(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, width))

    def forward(self, profile):
        x = nn.functional.interpolate(profile[None, None], size=256, mode="linear")
        return nn.functional.normalize(self.net(x[0]), dim=1)[0]


class Embedder:
    def __init__(self, shape, width=64):
        self.shape = shape
        self.model = PageNet(width).eval()
        self.mean = torch.zeros(width)
        self.done = 0
        self.failures = []

    def embed(self, blob):
        page = decode(blob, self.shape)
        profile = text_lines(page)
        with torch.no_grad():
            return self.model(torch.from_numpy(profile))

    def process(self, page_id, blob):
        """Embed one page; pages that fail are listed in the report at the end."""
        try:
            vector = self.embed(blob)
        except ValueError as error:
            self.failures.append(Failure(page_id, error))
            return None
        self.done += 1
        self.mean += (vector - self.mean) / self.done
        return vector

    def report(self):
        log.info("%d pages embedded, %d failed", self.done, len(self.failures))
        for failure in self.failures:
            log.warning("%s", failure)
