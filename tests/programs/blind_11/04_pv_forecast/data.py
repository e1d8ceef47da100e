"""Streamed satellite + PV samples, built on the fly from the season's frames."""
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class SiteMetadata:
    def __init__(self, sites, seed=7):
        rng = np.random.default_rng(seed)
        self.records = [
            {
                "site_id": int(i),
                "latitude": float(rng.uniform(49, 60)),
                "longitude": float(rng.uniform(-8, 2)),
                "capacity_kwp": float(rng.gamma(2.0, 30.0)),
                "tilt": float(rng.uniform(10, 45)),
                "name": f"site_{i:06d}",
            }
            for i in range(sites)
        ]


class StreamedDataset(Dataset):
    def __init__(self, sites, frames, samples, history=6):
        self.metadata = SiteMetadata(sites)
        self.frames = frames
        self.samples = samples
        self.history = history

    def __len__(self):
        return self.samples

    def __getitem__(self, index):
        rng = np.random.default_rng(index)
        t = int(rng.integers(self.history, len(self.frames)))
        y, x = rng.integers(0, self.frames.shape[1] - 24, size=2)
        satellite = self.frames[t - self.history:t, y:y + 24, x:x + 24]
        site = self.metadata.records[int(rng.integers(0, len(self.metadata.records)))]
        static = np.array([site["latitude"] / 60, site["longitude"] / 8, site["tilt"] / 45], dtype=np.float32)
        target = satellite.mean(axis=(1, 2))[-3:] * site["capacity_kwp"] / 60.0
        return torch.from_numpy(satellite.copy()), torch.from_numpy(static), torch.from_numpy(target.astype(np.float32))


class DataModule:
    def __init__(self, args):
        rng = np.random.default_rng(0)
        frames = rng.random((args.frames, 192, 192), dtype=np.float32)
        self.train = StreamedDataset(args.sites, frames, args.train_samples)
        self.val = StreamedDataset(args.sites, frames[: args.frames // 3], args.val_samples)
        self.common = dict(
            batch_size=args.batch_size,
            num_workers=args.num_workers,
            multiprocessing_context="spawn",
            persistent_workers=False,
            prefetch_factor=2,
        )

    def train_dataloader(self):
        return DataLoader(self.train, shuffle=True, **self.common)

    def val_dataloader(self):
        return DataLoader(self.val, shuffle=False, **self.common)
