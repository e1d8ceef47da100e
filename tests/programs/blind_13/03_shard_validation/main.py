"""Validates the shards of a dataset in parallel and writes a report."""
import argparse
import json
import logging
import os
import tempfile
import time

from parallel import Parallel
from shards import make_shards, validate_shard

log = logging.getLogger("validate")


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--data", default=None, help="folder with *.npz shards; a sample set is written when missing")
    p.add_argument("--shards", type=int, default=60)
    p.add_argument("--jobs", "-j", type=int, default=3)
    p.add_argument("--report", default="report.json")
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(levelname)s %(message)s")
    data = args.data or tempfile.mkdtemp(prefix="shards-")
    if args.data is None:
        make_shards(data, args.shards)
    paths = sorted(os.path.join(data, f) for f in os.listdir(data) if f.endswith(".npz"))
    log.info("validating %d shards in %s with %d jobs", len(paths), data, args.jobs)

    t0 = time.time()
    pool = Parallel(validate_shard, args.jobs)
    for path in paths:
        pool.put(path)
    pool.done()

    results = pool.results()
    log.info("finished %d shards in %.1f s", len(results), time.time() - t0)
    out = os.path.join(os.path.dirname(os.path.abspath(__file__)), args.report)
    with open(out, "w") as f:
        json.dump(results, f, indent=1)


if __name__ == "__main__":
    main()
