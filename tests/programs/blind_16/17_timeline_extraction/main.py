import argparse
import json
import logging
import multiprocessing as mp
import os
import random
import tempfile

from engine import ExtractionEngine


def parse_args():
    p = argparse.ArgumentParser(description="extract registry events from an image's hives")
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--worker-memory-limit", type=int, default=192 * 2**20)
    p.add_argument("--hives", type=int, default=24)
    p.add_argument("--output", default=None)
    return p.parse_args()


def find_hives(count):
    rng = random.Random(11)
    hives = [{"name": f"users{n:02d}/NTUSER.DAT", "keys": rng.randrange(4000, 9000), "value_size": 64}
             for n in range(count)]
    hives.insert(4, {"name": "Windows/System32/config/SOFTWARE", "keys": 900000, "value_size": 600})
    return hives


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s [%(levelname)s] (%(processName)s) %(message)s")
    output = args.output or os.path.join(tempfile.mkdtemp(prefix="timeline_"), "timeline.json")
    engine = ExtractionEngine(mp.get_context("fork"), args.workers, args.worker_memory_limit)
    results = engine.process_sources(find_hives(args.hives))
    with open(output, "w") as fh:
        json.dump(results, fh, indent=1)
    logging.info("Processing completed: %d hives, %s", len(results), output)


if __name__ == "__main__":
    main()
