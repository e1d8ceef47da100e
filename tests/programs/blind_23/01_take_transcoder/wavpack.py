"""Small command line converter: wav -> 16 kHz mono, block compressed."""
import argparse
import os
import sys
import time
import wave
import zlib

import numpy as np


def confirm_overwrite(path):
    sys.stderr.write(f"File '{path}' already exists. Overwrite? [y/N] ")
    sys.stderr.flush()
    answer = sys.stdin.readline()
    if answer.strip().lower() != "y":
        sys.stderr.write("not overwriting - exiting\n")
        sys.exit(1)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--in", dest="source", required=True)
    p.add_argument("--out", dest="target", required=True)
    p.add_argument("--rate", type=int, default=16000)
    p.add_argument("-y", action="store_true", help="overwrite the output without asking")
    args = p.parse_args()

    if os.path.exists(args.target) and not args.y:
        confirm_overwrite(args.target)

    with wave.open(args.source) as src:
        rate = src.getframerate()
        pcm = np.frombuffer(src.readframes(src.getnframes()), dtype="<i2").astype(np.float32)
    positions = np.arange(0, len(pcm), rate / args.rate)
    mono = np.interp(positions, np.arange(len(pcm)), pcm).astype("<i2")
    with open(args.target, "wb") as out:
        for start in range(0, len(mono), args.rate):
            block = zlib.compress(mono[start:start + args.rate].tobytes(), 9)
            out.write(len(block).to_bytes(4, "little") + block)
            print(f"out_time={min(start + args.rate, len(mono)) / args.rate:.2f}", flush=True)
            time.sleep(0.05)
    print("progress=end", flush=True)


if __name__ == "__main__":
    main()
