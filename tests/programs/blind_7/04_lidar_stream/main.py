"""Turns a replayed drive into voxel features and scores them for novelty."""
import argparse
import logging
import time
from concurrent.futures import ProcessPoolExecutor

import numpy as np

from features import init_worker, voxelize
from sensor import DriveReplay

log = logging.getLogger("lidar")


class NoveltyScore:
    """Distance of each frame to a running mean of the features."""

    def __init__(self, decay=0.98):
        self.decay = decay
        self.mean = None

    def update(self, feat):
        if self.mean is None:
            self.mean = feat.copy()
        score = float(np.abs(feat - self.mean).mean())
        self.mean *= self.decay
        self.mean += (1 - self.decay) * feat
        return score


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--frames", type=int, default=1150)
    p.add_argument("--hz", type=float, default=10.0)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--threshold", type=float, default=0.02)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")

    drive = DriveReplay(args.frames, hz=args.hz)
    novelty = NoveltyScore()
    kept = 0
    t0 = time.time()
    log.info("replaying %d frames at %.0f Hz", args.frames, args.hz)
    with ProcessPoolExecutor(args.workers, initializer=init_worker) as pool:
        for k, feat in pool.map(voxelize, drive.frames()):
            score = novelty.update(feat)
            if score > args.threshold:
                kept += 1
            if k % 50 == 0:
                log.info("frame %d novelty %.4f kept %d (%.0f s)", k, score, kept, time.time() - t0)
    log.info("done, %d frames kept", kept)


if __name__ == "__main__":
    main()
