import argparse
import logging
import multiprocessing as mp
import pathlib
import time

import numpy as np

from features import extract
from mplogging import setup_logging

log = logging.getLogger("extraction")


class ExtractionRun:
    def __init__(self, recordings, workers):
        self.recordings = recordings
        self.workers = workers
        self.features = {}

    def run(self):
        started = time.time()
        with mp.get_context("fork").Pool(self.workers) as pool:
            for index, vector in pool.imap_unordered(extract, range(self.recordings)):
                self.features[index] = vector
                if len(self.features) % 50 == 0:
                    log.info("%d/%d recordings, %.1f/s", len(self.features), self.recordings,
                             len(self.features) / (time.time() - started))
        return np.stack([self.features[i] for i in sorted(self.features)])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--recordings", type=int, default=8000)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--log-file", default="extraction.log")
    parser.add_argument("--output", default="features.npy")
    args = parser.parse_args()
    handler = setup_logging(args.log_file)
    log.info("extracting %d recordings with %d workers", args.recordings, args.workers)
    matrix = ExtractionRun(args.recordings, args.workers).run()
    np.save(pathlib.Path(args.output), matrix)
    log.info("features %s written to %s", matrix.shape, args.output)
    handler.close()


if __name__ == "__main__":
    main()
