import json
import random
import tempfile

import torch
from torch.utils.data import Dataset


def write_annotations(n_tracks=9000, path=None):
    rng = random.Random(0)
    path = path or tempfile.mkstemp(suffix=".json", prefix="tracks_")[1]
    with open(path, "w") as f:
        json.dump([{"id": i, "boxes": [[rng.randrange(640) for _ in range(4)] for _ in range(60)]}
                   for i in range(n_tracks)], f)
    return path


class TrackingSampler(Dataset):
    """Random pairs of crops; the annotations are large, hence loaded where they are used."""

    def __init__(self, path, samples_per_epoch):
        self.path, self.samples_per_epoch, self.tracks = path, samples_per_epoch, None

    def _load(self):
        with open(self.path) as f:
            raw = json.load(f)
        self.tracks = {t["id"]: torch.tensor(t["boxes"], dtype=torch.float32) for t in raw}

    def __len__(self):
        return self.samples_per_epoch

    def __getitem__(self, i):
        if self.tracks is None:
            self._load()
        t = self.tracks[random.randrange(len(self.tracks))]
        return t[random.randrange(60)] / 640, t[random.randrange(60)] / 640
