import argparse
import logging
import pathlib
import time

import numpy as np

ALPHABET = {c: i for i, c in enumerate("abcdefghijklmnopqrstuvwxyz .,'\n")}
DOCUMENTS = ["the quick brown fox jumps over the lazy dog.\n", "it's a long way, she said.\n",
             "rain in the hills, sun by the sea.\n", "a café by the old harbour.\n", "good night.\n"]


def encode(text):
    return np.array([ALPHABET[c] for c in text], dtype=np.uint16)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--out", type=pathlib.Path, required=True)
    p.add_argument("--shards", type=int, required=True)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s tokenize %(message)s")
    for shard in range(args.shards):
        tokens = encode(DOCUMENTS[shard % len(DOCUMENTS)] * 2000)
        time.sleep(0.8)
        np.save(args.out / f"shard-{shard}.npy", tokens)
        logging.info("shard %d: %d tokens", shard, len(tokens))


if __name__ == "__main__":
    main()
