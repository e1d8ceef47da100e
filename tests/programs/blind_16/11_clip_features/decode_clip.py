"""Stand-in for the ffmpeg binary: decodes a clip to raw rgb24 frames on stdout."""
import argparse
import sys
import time

import numpy as np


def parse_args():
    p = argparse.ArgumentParser(description="decode a clip to rawvideo on stdout")
    p.add_argument("-i", dest="source", required=True)
    p.add_argument("--size", default="160x120")
    p.add_argument("--fps", type=float, default=25.0)
    p.add_argument("--frames", type=int, default=600)
    p.add_argument("--loglevel", default="info")
    return p.parse_args()


def main():
    args = parse_args()
    w, h = (int(v) for v in args.size.split("x"))
    rng = np.random.default_rng(abs(hash(args.source)) % 2**32)
    out, err = sys.stdout.buffer, sys.stderr
    err.write(f"Input #0, mov,mp4, from '{args.source}':\n"
              f"  Stream #0:0: Video: h264 (High), yuv420p, {args.size}, {args.fps} fps\n")
    err.flush()
    variable_rate = args.source.endswith("_vfr.mp4")
    base = rng.integers(0, 255, (h, w, 3), dtype=np.uint8)
    for n in range(args.frames):
        if variable_rate:
            for stream in (0, 1):
                err.write(f"[rawvideo @ 0x5581c0de{stream:04x}] Application provided invalid, non "
                          f"monotonically increasing dts to muxer in stream {stream}: {n + 1} >= {n}\n")
            err.flush()
        frame = np.roll(base, n, axis=1)
        out.write(frame.tobytes())
        out.flush()
        time.sleep(0.002)
    err.write(f"frame={args.frames} video:ok\n")


if __name__ == "__main__":
    main()
