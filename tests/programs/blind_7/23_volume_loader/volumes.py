"""Scans of several sites, one list of scans per loader worker."""
import logging

import torch
from torch.nn import functional as F
from torch.utils.data import IterableDataset, get_worker_info

log = logging.getLogger(__name__)

SPACING = {"A": 40, "B": 40, "C": 40, "D": 176}  # side of the raw scan


def scan_list(n_small, n_large):
    """(site, number) of every scan, as they come from the index file."""
    rows = [(site, k) for k in range(n_small) for site in ("A", "B", "C")]
    head = rows[: n_small // 2 * 3]
    tail = [("D", n) if site == "B" and n < n_large else (site, n) for site, n in rows[len(head):]]
    return head + tail


class ScanStream(IterableDataset):
    def __init__(self, scans, side=32, smooth=3):
        super().__init__()
        self.scans, self.side, self.smooth = scans, side, smooth

    def _read(self, site, number):
        g = torch.Generator().manual_seed(hash((site, number)) % 2**31)
        n = SPACING[site]
        return torch.randn(1, 1, n, n, n, generator=g)

    def _prepare(self, x):
        for _ in range(self.smooth):
            x = F.avg_pool3d(x, 3, stride=1, padding=1)
        return F.interpolate(x, size=(self.side,) * 3, mode="trilinear")[0]

    def __iter__(self):
        torch.set_num_threads(1)
        info = get_worker_info()
        first, jump = (info.id, info.num_workers) if info else (0, 1)
        for site, number in self.scans[first::jump]:
            yield self._prepare(self._read(site, number)), "ABCD".index(site) % 2
