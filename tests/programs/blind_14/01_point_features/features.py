"""Per-scan features: pairwise offsets, a radius histogram and the k nearest neighbours."""
import logging
import os
import time

import numpy as np
import torch

from clouds import read_scan

log = logging.getLogger("features")


class Normalizer:
    """Mean and scale over all scans, so that radii mean the same everywhere."""

    def __init__(self):
        self.mean = torch.zeros(3)
        self.scale = torch.ones(3)

    def fit(self, paths):
        points = torch.cat([torch.from_numpy(read_scan(p)) for p in paths])
        self.mean = points.mean(0)
        centred = points.repeat(8, 1) - self.mean
        self.scale = centred.pow(2).mean(0).sqrt()
        return self

    def __call__(self, points):
        return (points - self.mean) / self.scale


def voxel_downsample(points, cell):
    keep = {}
    for i, p in enumerate(points.tolist()):
        keep.setdefault(tuple(int(c // cell) for c in p), i)
    return points[sorted(keep.values())]


def extract(job):
    path, norm, k, bins = job
    began = time.time()
    points = norm(torch.from_numpy(read_scan(path)))
    points = voxel_downsample(points, 0.001)
    time.sleep(0.2)  # the intensity channel comes from the scanner's share
    offsets = points[None] - points[:, None]
    dist = offsets.pow(2).sum(-1).sqrt()
    hist = torch.from_numpy(np.histogram(dist.numpy(), bins=bins, range=(0, 6))[0])
    near = dist.topk(min(k + 1, len(points)), largest=False).indices[:, 1:]
    log.info("pid %d: %s, %d points, %.2f s", os.getpid(), os.path.basename(path), len(points),
             time.time() - began)
    return path, hist, near
