"""Extract log-mel like features for a corpus of clips, several workers over one feature cache."""
import argparse
import logging
import multiprocessing as mp
import os
import random
import tempfile
import threading
import time

import numpy as np
import torch

from cache import FeatureCache

log = logging.getLogger("extract")


def walltime_limit(seconds):
    def expire():
        time.sleep(seconds)
        log.warning("wall time of %d s used up, leaving", seconds)
        os._exit(0)

    threading.Thread(target=expire, name="walltime", daemon=True).start()


class MelFrontend:
    def __init__(self, n_fft=512, hop=160, n_mels=64):
        self.n_fft, self.hop, self.n_mels = n_fft, hop, n_mels
        gen = torch.Generator().manual_seed(0)
        self.window = torch.hann_window(n_fft)
        self.filters = torch.rand(n_mels, n_fft // 2 + 1, generator=gen)

    def config(self):
        return f"{self.n_fft}/{self.hop}/{self.n_mels}"

    def __call__(self, wave):
        spec = torch.stft(wave, self.n_fft, self.hop, window=self.window, return_complex=True).abs()
        return torch.log1p(self.filters @ spec)


class Clip:
    def __init__(self, index, seconds):
        self.index = index
        self.name = f"clip_{index:06d}.wav"
        self.seconds = seconds

    def read(self):
        rng = np.random.default_rng(self.index)
        time.sleep(0.03)
        return torch.from_numpy(rng.standard_normal(int(16000 * self.seconds)).astype(np.float32))


class ExtractionWorker(mp.Process):
    def __init__(self, rank, clips, cache, results, args):
        super().__init__(name=f"extract-{rank}", daemon=True)
        self.rank, self.clips, self.cache, self.results, self.args = rank, clips, cache, results, args

    def run(self):
        torch.set_num_threads(1)
        walltime_limit(self.args.walltime)
        frontend = MelFrontend()
        order = random.Random(self.rank)
        for epoch in range(self.args.epochs):
            clips = list(self.clips)
            order.shuffle(clips)
            for clip in clips:
                key = self.cache.key(clip.name, clip.seconds, frontend.config())
                feats = self.cache.get_or_compute(key, lambda: frontend(clip.read()).numpy())
                self.results.put((self.rank, epoch, clip.index, float(feats.mean()), feats.shape[-1]))


class Summary:
    def __init__(self):
        self.count, self.frames, self.total = 0, 0, 0.0
        self.started = time.time()

    def add(self, mean, frames):
        self.count += 1
        self.frames += frames
        self.total += mean * frames

    def report(self, cache):
        hits, misses, size = cache.stats.snapshot()
        log.info("%d features (%.1f/s), hits %d misses %d, cache %.1f MB, mean %.4f", self.count,
                 self.count / (time.time() - self.started), hits, misses, size / 1e6,
                 self.total / max(1, self.frames))


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--clips", type=int, default=4000)
    p.add_argument("--workers", type=int, default=4)
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--cache-mb", type=float, default=40)
    p.add_argument("--walltime", type=int, default=115)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(name)s: %(message)s")
    walltime_limit(args.walltime)
    rng = random.Random(7)
    clips = [Clip(i, rng.uniform(2.0, 6.0)) for i in range(args.clips)]
    ctx = mp.get_context("fork")
    with tempfile.TemporaryDirectory(prefix="features_") as root:
        cache = FeatureCache(ctx, root, int(args.cache_mb * 1e6))
        results = ctx.Queue(maxsize=256)
        workers = [ExtractionWorker(r, clips, cache, results, args) for r in range(args.workers)]
        for w in workers:
            w.start()
        summary = Summary()
        expected = args.clips * args.epochs * args.workers
        while summary.count < expected:
            _, _, _, mean, frames = results.get()
            summary.add(mean, frames)
            if summary.count % 100 == 0:
                summary.report(cache)
        for w in workers:
            w.join()
        summary.report(cache)


if __name__ == "__main__":
    main()
