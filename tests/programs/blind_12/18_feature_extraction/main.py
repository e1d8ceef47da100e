"""Extracts clip features for a train/val/test split and fits normalisation statistics."""
import argparse
import logging
import os
import tempfile

import numpy as np

from pipeline import ExtractionPool

log = logging.getLogger("extract")


def split_paths(split, count):
    return [f"{split}/clip_{i:05d}.wav" for i in range(count)]


def extract_split(split, count, workers, outdir):
    pool = ExtractionPool(workers)
    rows = []
    for i, (path, vector) in enumerate(pool.map(split_paths(split, count)), 1):
        rows.append(vector)
        if i % 50 == 0:
            log.info("%s %d/%d", split, i, count)
    features = np.stack(rows)
    np.save(os.path.join(outdir, f"{split}.npy"), features)
    pool.shutdown()
    return features


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--train", type=int, default=300)
    parser.add_argument("--val", type=int, default=200)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    outdir = tempfile.mkdtemp(prefix="features_")

    train = extract_split("train", args.train, args.workers, outdir)
    log.info("train features %s", train.shape)
    mean, std = train.mean(axis=0), train.std(axis=0) + 1e-6
    val = extract_split("val", args.val, args.workers, outdir)
    np.savez(os.path.join(outdir, "norm.npz"), mean=mean, std=std)
    log.info("val after normalisation: %.3f", float(np.abs((val - mean) / std).mean()))


if __name__ == "__main__":
    main()
