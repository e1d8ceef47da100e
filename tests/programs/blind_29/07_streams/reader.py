"""Streams batches of one stream to stdout: python reader.py FOLDER STREAM SHARDS BATCH"""
import argparse
import os
import pickle
import struct
import sys
import time
import zlib

import numpy as np


def send(batch):
    frame = pickle.dumps(batch, protocol=5)
    sys.stdout.buffer.write(struct.pack("<I", len(frame)) + frame)
    sys.stdout.buffer.flush()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("stream")
    parser.add_argument("shards", type=int)
    parser.add_argument("batch", type=int)
    parser.add_argument("--in-memory", action="store_true", help="read everything once at the start")
    args = parser.parse_args()
    names = [os.path.join(args.folder, f"{args.stream}-{i:03d}.npy") for i in range(args.shards)]
    loaded = [np.load(name) for name in names] if args.in_memory else None
    rng = np.random.default_rng(zlib.crc32(args.stream.encode()))
    while True:
        for i in rng.permutation(args.shards):
            rows = loaded[i] if args.in_memory else np.load(names[i])
            for batch in np.array_split(rows[rng.permutation(len(rows))], max(1, len(rows) // args.batch)):
                send(batch)
                time.sleep(0.01)


if __name__ == "__main__":
    main()
