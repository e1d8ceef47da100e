"""Extract one feature vector per video frame: workers preprocess, the main process runs the model."""
import argparse
import logging
import os
import tempfile
import time
from multiprocessing import Pool

import numpy as np

from video import VideoReader, preprocess

log = logging.getLogger("features")


class FeatureModel:
    """Patch embedding and pooling; stands in for the accelerator with a fixed latency."""

    def __init__(self, patch=16, dim=128, latency=0.12):
        rng = np.random.default_rng(0)
        self.patch = patch
        self.w = rng.standard_normal((3 * patch * patch, dim)).astype(np.float32) / patch
        self.latency = latency

    def __call__(self, frame):
        p = self.patch
        c, h, w = frame.shape
        patches = frame.reshape(c, h // p, p, w // p, p).transpose(1, 3, 0, 2, 4).reshape(-1, c * p * p)
        time.sleep(self.latency)
        return np.maximum(patches @ self.w, 0).mean(0)


class FeatureWriter:
    def __init__(self, path, dim=128):
        self.path = path
        self.file = open(path, "wb")
        self.count = 0

    def write(self, index, vector):
        self.file.write(np.int64(index).tobytes() + vector.astype(np.float32).tobytes())
        self.count += 1


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--frames", type=int, default=20000)
    p.add_argument("--workers", type=int, default=3)
    p.add_argument("--out", default=None)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    out = args.out or os.path.join(tempfile.mkdtemp(prefix="feat_"), "features.bin")
    model, writer = FeatureModel(), FeatureWriter(out)
    reader = VideoReader(args.frames)
    start = time.time()
    with Pool(args.workers) as pool:
        for index, frame in pool.imap(preprocess, reader, chunksize=1):
            writer.write(index, model(frame))
            if writer.count % 50 == 0:
                log.info("%d/%d frames, %.1f frames/s", writer.count, args.frames,
                         writer.count / (time.time() - start))
    log.info("features in %s", out)


if __name__ == "__main__":
    main()
