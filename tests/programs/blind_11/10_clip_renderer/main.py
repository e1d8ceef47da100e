import argparse
import logging
import multiprocessing as mp
import os
import tempfile
import time

import numpy as np

from decoder import VideoDecoder

log = logging.getLogger("render")


def setup_logging():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")


def render_clip(job):
    clip_id, frames, pix_fmt, out_dir = job
    started = time.time()
    rng = np.random.default_rng(clip_id)
    decoder = VideoDecoder(96, 64, seed=clip_id)
    latents = rng.normal(size=(frames, 4)).astype(np.float32)
    log.info("clip %03d: %d frames, %s", clip_id, frames, pix_fmt)
    path = os.path.join(out_dir, f"clip_{clip_id:03d}.bin")
    code = decoder.decode_and_stream(latents, path, pix_fmt)
    return clip_id, code, os.path.getsize(path), time.time() - started


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--clips", type=int, default=24)
    parser.add_argument("--frames", type=int, default=120)
    parser.add_argument("--long-frames", type=int, default=480)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", default=None)
    args = parser.parse_args()
    setup_logging()
    out_dir = args.out or tempfile.mkdtemp(prefix="clips_")

    jobs = []
    for clip in range(args.clips):
        long_clip = clip % 6 in (4, 5)
        jobs.append((clip, args.long_frames if long_clip else args.frames, "yuvj420p" if clip % 2 == 0 or long_clip else "rgb24", out_dir))

    with mp.Pool(args.workers) as pool:
        for clip_id, code, size, seconds in pool.imap_unordered(render_clip, jobs):
            log.info("clip %03d written: %d bytes, exit %d, %.1fs", clip_id, size, code, seconds)
    log.info("rendered %d clips into %s", len(jobs), out_dir)


if __name__ == "__main__":
    main()
