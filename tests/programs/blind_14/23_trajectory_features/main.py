"""Adaptive sampling: simulators write trajectories, the analysis keeps a running TICA estimate."""
import argparse
import logging
import multiprocessing as mp
import os
import tempfile

import numpy as np

from readers import FeatureSource
from simulate import simulate


class RunningTICA:
    def __init__(self, dim, lag):
        self.lag = lag
        self.c0 = np.zeros((dim, dim))
        self.ct = np.zeros((dim, dim))
        self.n = 0

    def update(self, chunk):
        a, b = chunk[:-self.lag], chunk[self.lag:]
        self.c0 += a.T @ a
        self.ct += a.T @ b
        self.n += len(a)

    def timescales(self, k=3):
        c0 = self.c0 / self.n + 1e-6 * np.eye(len(self.c0))
        w = np.linalg.eigvals(np.linalg.solve(c0, (self.ct + self.ct.T) / 2 / self.n)).real
        w = np.clip(np.sort(w)[::-1][:k], 1e-6, 0.999999)
        return -self.lag / np.log(w)


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--simulators", type=int, default=3)
    p.add_argument("--frames", type=int, default=1000)
    p.add_argument("--dim", type=int, default=12)
    p.add_argument("--interval", type=float, default=0.3, help="seconds per trajectory and simulator")
    p.add_argument("--chunksize", type=int, default=500)
    p.add_argument("--lag", type=int, default=10)
    p.add_argument("--seed", type=int, default=0)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    with tempfile.TemporaryDirectory(prefix="trajs_") as out_dir:
        files = mp.Queue(maxsize=64)
        sims = [mp.Process(target=simulate, name=f"simulator-{i}", daemon=True,
                           args=(i, out_dir, files, args.frames, args.dim, args.interval, args.seed))
                for i in range(args.simulators)]
        for p in sims:
            p.start()
        source = FeatureSource(args.chunksize)
        tica = RunningTICA(args.dim, args.lag)
        while True:
            reader = source.add(files.get())
            for chunk in reader.chunks(args.chunksize):
                tica.update(chunk)
            os.unlink(reader.filename)
            if len(source.readers) % 25 == 0:
                logging.info("%d trajectories, %d frames, timescales %s", len(source.readers),
                             source.n_frames_total, np.round(tica.timescales(), 2))


if __name__ == "__main__":
    main()
