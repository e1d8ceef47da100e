"""2D segmentation on slices of 3D cases."""
import argparse
import logging
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

from volumes import VolumeFile, make_archive

log = logging.getLogger("seg2d")


class SliceDataset(Dataset):
    def __init__(self, paths, crop=128):
        self.volumes = [VolumeFile(p) for p in paths]
        self.index = [(v, z) for v, vol in enumerate(self.volumes) for z in range(len(vol))]
        self.crop = crop

    def __len__(self):
        return len(self.index)

    def __getitem__(self, i):
        v, z = self.index[i]
        img = self.volumes[v].slice(z).astype(np.float32)
        top = np.random.randint(0, img.shape[0] - self.crop)
        left = np.random.randint(0, img.shape[1] - self.crop)
        img = img[top:top + self.crop, left:left + self.crop]
        img = (img - img.mean()) / (img.std() + 1e-6)
        mask = (img > 1.0).astype(np.float32)
        return torch.from_numpy(img)[None], torch.from_numpy(mask)[None]


class SmallUNet(nn.Module):
    def __init__(self, c=8):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(1, c, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                                  nn.Conv2d(c, 2 * c, 3, padding=1), nn.ReLU())
        self.up = nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(2 * c, c, 3, padding=1), nn.ReLU(),
                                nn.Conv2d(c, 1, 1))

    def forward(self, x):
        return self.up(self.down(x))


class Trainer:
    def __init__(self, args, paths):
        self.args = args
        self.loader = DataLoader(SliceDataset(paths), batch_size=args.batch_size, shuffle=True,
                                 num_workers=args.workers, persistent_workers=True, drop_last=True)
        self.model = SmallUNet()
        self.opt = torch.optim.Adam(self.model.parameters(), lr=1e-3)

    def run(self):
        stop_at = time.monotonic() + self.args.seconds
        step = 0
        for epoch in range(self.args.epochs):
            t_data, t_comp = 0.0, 0.0
            mark = time.perf_counter()
            for x, y in self.loader:
                got = time.perf_counter()
                loss = nn.functional.binary_cross_entropy_with_logits(self.model(x), y)
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                done = time.perf_counter()
                t_data += got - mark
                t_comp += done - got
                mark = done
                step += 1
                if step % 5 == 0:
                    log.info("epoch %d step %d loss %.4f data %.2fs compute %.2fs (sums of epoch)",
                             epoch, step, loss.item(), t_data, t_comp)
                if time.monotonic() > stop_at:
                    log.info("time is up")
                    return


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--cases", type=int, default=3)
    ap.add_argument("--depth", type=int, default=240)
    ap.add_argument("--size", type=int, default=320)
    ap.add_argument("--batch-size", type=int, default=8)
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--epochs", type=int, default=50)
    ap.add_argument("--seconds", type=float, default=120)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="cases_") as folder:
        log.info("unpacking %d cases", args.cases)
        paths = make_archive(folder, args.cases, (args.depth, args.size, args.size))
        Trainer(args, paths).run()


if __name__ == "__main__":
    main()
