import argparse
import logging
import multiprocessing as mp
import os
import tempfile
import time

import numpy as np

from reader import VideoReader

log = logging.getLogger("clip_features")


def parse_args():
    p = argparse.ArgumentParser(description="extract colour histograms from a folder of clips")
    p.add_argument("--clips", type=int, default=80)
    p.add_argument("--vfr-every", type=int, default=3, help="every n-th camera records variable frame rate")
    p.add_argument("--frames", type=int, default=400)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--bins", type=int, default=32)
    p.add_argument("--out", default=None)
    return p.parse_args()


def list_clips(args):
    return [f"cam{n % 4}/clip_{n:04d}{'_vfr' if n % args.vfr_every == args.vfr_every - 1 else ''}.mp4"
            for n in range(args.clips)]


def histogram(frame, bins):
    return np.stack([np.histogram(frame[..., c], bins=bins, range=(0, 255))[0] for c in range(3)])


def process_clip(job):
    name, frames, bins, out_dir = job
    reader = VideoReader(name, nframes=frames)
    feats = []
    try:
        for i, frame in enumerate(reader):
            if i % 4 == 0:
                feats.append(histogram(frame, bins))
    finally:
        reader.close()
    feats = np.asarray(feats)
    np.save(os.path.join(out_dir, name.replace("/", "_") + ".npy"), feats)
    return name, len(feats)


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    out_dir = args.out or tempfile.mkdtemp(prefix="clip_features_")
    clips = list_clips(args)
    log.info("%d clips, %d workers, features to %s", len(clips), args.workers, out_dir)
    start = time.time()
    with mp.Pool(args.workers) as pool:
        jobs = [(c, args.frames, args.bins, out_dir) for c in clips]
        for done, (name, n) in enumerate(pool.imap(process_clip, jobs), 1):
            log.info("[%d/%d] %s: %d features (%.1f s)", done, len(clips), name, n, time.time() - start)
    log.info("finished in %.1f s", time.time() - start)


if __name__ == "__main__":
    main()
