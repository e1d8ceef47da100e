"""Command line encoder: raw frames on stdin, compressed stream into the output file, diagnostics on stderr."""
import argparse
import sys
import zlib


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", required=True)
    parser.add_argument("--pix-fmt", default="rgb24")
    parser.add_argument("-o", "--output", required=True)
    args = parser.parse_args()
    width, height = (int(v) for v in args.size.split("x"))
    frame_bytes = width * height * 3
    packer = zlib.compressobj(1)
    with open(args.output, "wb") as out:
        sys.stderr.write(f"Input #0, rawvideo, {args.pix_fmt}, {args.size}\n")
        count = 0
        while True:
            frame = sys.stdin.buffer.read(frame_bytes)
            if len(frame) < frame_bytes:
                break
            out.write(packer.compress(frame))
            count += 1
            if args.pix_fmt != "rgb24":
                sys.stderr.write(f"[swscaler @ 0x5600c0de{count:04x}] deprecated pixel format {args.pix_fmt} used, "
                                 "make sure you did set range correctly, falling back to full range for this frame; "
                                 "chroma location of the source is unspecified and assumed to be left\n")
        out.write(packer.flush())
        sys.stderr.write(f"frame={count} muxing done\n")


if __name__ == "__main__":
    main()
