"""Fits an ensemble, one process per shard, and averages the members when all are through."""
import argparse
import json
import logging
import tempfile
from pathlib import Path

import numpy as np

from supervisor import Supervisor

log = logging.getLogger("ensemble")


def average(out_dir):
    members = [json.loads(p.read_text()) for p in sorted(Path(out_dir).glob("shard_*.json"))]
    weight = np.mean([m["weight"] for m in members], axis=0)
    log.info("%d members, mean loss %.4f, weight %s", len(members), np.mean([m["loss"] for m in members]),
             np.round(weight, 2))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shards", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    with tempfile.TemporaryDirectory(prefix="ensemble_") as out_dir:
        Supervisor(out_dir, args.shards, args.steps).run()
        average(out_dir)


if __name__ == "__main__":
    main()
