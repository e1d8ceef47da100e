import argparse
import logging
import pathlib
import time

import numpy as np


def wait_for(path):
    while not path.exists():
        time.sleep(0.5)
    return np.load(path)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--data", type=pathlib.Path, required=True)
    p.add_argument("--shards", type=int, required=True)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s train %(message)s")
    counts = np.ones((32, 32))
    for shard in range(args.shards):
        tokens = wait_for(args.data / f"shard-{shard}.npy")
        np.add.at(counts, (tokens[:-1], tokens[1:]), 1)
        prob = counts / counts.sum(1, keepdims=True)
        logging.info("shard %d: perplexity %.2f", shard, np.exp(-np.log(prob[tokens[:-1], tokens[1:]]).mean()))


if __name__ == "__main__":
    main()
