import argparse
import logging
from concurrent.futures import ProcessPoolExecutor

import numpy as np

from extract import Extractor, patch_statistics

log = logging.getLogger("patches")


class FeatureJob:
    def __init__(self, args):
        self.args = args
        self.executor = ProcessPoolExecutor(max_workers=args.workers)
        self.chunks = np.array_split(np.arange(args.patches), args.patches // args.chunk)

    def statistics(self):
        rows = list(self.executor.map(patch_statistics, self.chunks[:20]))
        mean, std = np.mean(rows, axis=0)
        log.info("mean %.4f std %.4f over %d chunks", mean, std, len(rows))
        return float(mean), float(std)

    def features(self, extractor):
        futures = [self.executor.submit(extractor.run, c) for c in self.chunks]
        out = []
        for i, f in enumerate(futures):
            out.append(f.result())
            if i % 20 == 0:
                log.info("chunk %d/%d", i, len(futures))
        return np.concatenate(out)

    def run(self):
        try:
            mean, std = self.statistics()
            feats = self.features(Extractor(mean, std))
            log.info("features %s", feats.shape)
        finally:
            log.info("shutting down workers")
            self.executor.shutdown(wait=True, cancel_futures=True)


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--patches", type=int, default=6000)
    p.add_argument("--chunk", type=int, default=30)
    p.add_argument("--workers", type=int, default=2)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    FeatureJob(p.parse_args()).run()
