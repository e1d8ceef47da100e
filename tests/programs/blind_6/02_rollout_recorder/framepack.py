"""Stand-in for the external encoder: raw RGB frames on stdin, packed file out."""
import argparse
import sys
import zlib


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("-s", "--size", default="64x64")
    ap.add_argument("-r", "--rate", type=int, default=30)
    ap.add_argument("output")
    args = ap.parse_args()
    w, h = (int(v) for v in args.size.split("x"))
    nbytes = w * h * 3
    err = sys.stderr
    err.write(f"Input #0, rawvideo, from 'pipe:': rgb24, {w}x{h}, {args.rate} fps\n")
    packer, n, size = zlib.compressobj(1), 0, 0
    with open(args.output, "wb") as out:
        while True:
            buf = sys.stdin.buffer.read(nbytes)
            if len(buf) < nbytes:
                break
            data = packer.compress(buf)
            size += out.write(data)
            n += 1
            err.write(
                f"frame={n:5d} fps={args.rate:3d} q=-1.0 size={size // 1024:8d}kB "
                f"time=00:{n // args.rate // 60:02d}:{n // args.rate % 60:02d}.00 "
                f"bitrate={8 * size / max(n, 1):8.1f}bits/frame speed=1.00x\n"
                f"[rawvideo @ 0x55d0c8] pkt pts:{n} dts:{n} size:{len(buf)} flags:K\n"
            )
            err.flush()
        out.write(packer.flush())
    err.write(f"video: {n} frames muxed\n")


if __name__ == "__main__":
    main()
