"""Waits for recordings to arrive and turns them into spectrogram features."""
import argparse
import logging
import multiprocessing as mp
import time
from pathlib import Path

import numpy as np
import torch

log = logging.getLogger("ingest")


class Recorder:
    """Stands for the station that drops a handful of files every now and then."""

    def __init__(self, folder: Path, every, files, seconds):
        self.folder, self.every, self.files, self.seconds = folder, every, files, seconds

    def __call__(self):
        rng = np.random.default_rng(0)
        n = 0
        while True:
            time.sleep(self.every)
            for _ in range(self.files):
                tmp = self.folder / f".{n:05d}.npy"
                np.save(tmp, rng.standard_normal(16_000 * self.seconds).astype(np.float32))
                tmp.rename(self.folder / f"{n:05d}.npy")
                n += 1


def features(path):
    torch.set_num_threads(1)
    x = torch.from_numpy(np.load(path))
    spec = torch.stft(x, 512, 160, window=torch.hann_window(512), return_complex=True).abs()
    bands = []
    for width in (3, 5, 9, 17, 33):
        smooth = torch.nn.functional.avg_pool1d(spec[None], width, stride=1, padding=width // 2)[0]
        bands.append((smooth.mean(), smooth.std(), smooth.amax()))
    Path(path).unlink()
    return Path(path).name, torch.tensor(bands)


class Ingest:
    def __init__(self, folder, processes, poll_s):
        self.folder = folder
        self.pool = mp.Pool(processes)
        self.poll_s = poll_s
        self.done = 0

    def run(self, seconds):
        t_end = time.monotonic() + seconds
        while time.monotonic() < t_end:
            new = sorted(str(f) for f in self.folder.glob("[0-9]*.npy"))
            if not new:
                time.sleep(self.poll_s)
                continue
            t0 = time.time()
            for name, feats in self.pool.imap_unordered(features, new):
                self.done += 1
            log.info("%d files in %.1f s, %d in all", len(new), time.time() - t0, self.done)
        self.pool.close()
        self.pool.join()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--folder", type=Path, default=Path("incoming"))
    p.add_argument("--every", type=float, default=14.0)
    p.add_argument("--files", type=int, default=10)
    p.add_argument("--clip-seconds", type=int, default=20)
    p.add_argument("--processes", type=int, default=2)
    p.add_argument("--poll", type=float, default=1.0)
    p.add_argument("--seconds", type=float, default=110)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    args.folder.mkdir(parents=True, exist_ok=True)

    station = mp.Process(target=Recorder(args.folder, args.every, args.files, args.clip_seconds), name="station",
                         daemon=True)
    station.start()
    log.info("watching %s", args.folder)
    Ingest(args.folder, args.processes, args.poll).run(args.seconds)


if __name__ == "__main__":
    main()
