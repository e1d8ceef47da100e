"""Meteor camera: 25 frames a second, star positions of every frame go to the log."""
import argparse
import logging
import multiprocessing as mp
import time

import numpy as np

from archive import serve
from logsetup import start_logging

log = logging.getLogger("capture")


def find_stars(frame, limit):
    flat = frame.ravel()
    top = np.argpartition(flat, -limit)[-limit:]
    rows, cols = np.divmod(top, frame.shape[1])
    return [(int(r), int(c), float(v)) for r, c, v in zip(rows, cols, flat[top])]


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--seconds", type=float, default=110)
    p.add_argument("--fps", type=float, default=25)
    p.add_argument("--stars", type=int, default=40)
    args = p.parse_args()

    ours, theirs = mp.Pipe()
    archive = mp.Process(target=serve, args=(theirs,), name="archive", daemon=True)
    archive.start()
    start_logging(ours.recv())

    rng = np.random.default_rng(8)
    until, frames = time.monotonic() + args.seconds, 0
    while time.monotonic() < until:
        began = time.monotonic()
        frame = rng.random((240, 320), dtype=np.float32)
        for row, col, value in find_stars(frame, args.stars):
            log.debug("frame %d star at (%d, %d) value %.4f patch %s", frames, row, col, value,
                      frame[max(row - 12, 0):row + 12, max(col - 12, 0):col + 12].tobytes().hex())
        frames += 1
        if frames % 50 == 0:
            print(f"{frames} frames captured", flush=True)
        time.sleep(max(0.0, 1 / args.fps - (time.monotonic() - began)))


if __name__ == "__main__":
    main()
