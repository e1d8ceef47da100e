"""Extract backbone features for all shards of a data set and write one matrix."""
import argparse
import logging
import multiprocessing as mp
import os
import tempfile
import time

import numpy as np

from backbone import extract_shard, init_worker

log = logging.getLogger("extract")


class FeatureExtractor:
    def __init__(self, num_workers, feature_dim, seed):
        self.num_workers = num_workers
        self.feature_dim = feature_dim
        self.seed = seed
        self.pending = []

    def _probe(self, pool, shard):
        """Run one shard first so a wrong configuration shows up immediately."""
        feats = pool.apply(extract_shard, (shard, 32))
        if feats.shape[1] != self.feature_dim:
            raise ValueError("expected %d features, got %d" % (self.feature_dim, feats.shape[1]))
        return feats

    def submit(self, shards, images_per_shard):
        with mp.Pool(self.num_workers, initializer=init_worker,
                     initargs=(self.feature_dim, self.seed)) as pool:
            probe = self._probe(pool, shards[0])
            log.info("probe ok: %s", probe.shape)
            for shard in shards:
                self.pending.append((shard, pool.apply_async(extract_shard, (shard, images_per_shard))))
            log.info("submitted %d shards to %d workers", len(self.pending), self.num_workers)
            self._wait_first()

    def _wait_first(self, timeout=60):
        self.pending[0][1].wait(timeout)

    def collect(self):
        out = []
        for i, (shard, result) in enumerate(self.pending):
            feats = result.get()
            out.append(feats)
            log.info("[%d/%d] shard %d: %d x %d", i + 1, len(self.pending), shard, *feats.shape)
        return np.concatenate(out)


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--num-shards", type=int, default=48)
    p.add_argument("--images-per-shard", type=int, default=144)
    p.add_argument("--num-workers", type=int, default=3)
    p.add_argument("--feature-dim", type=int, default=256)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--out", default=None)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    out = args.out or os.path.join(tempfile.mkdtemp(prefix="features_"), "features.npy")
    t0 = time.time()
    extractor = FeatureExtractor(args.num_workers, args.feature_dim, args.seed)
    extractor.submit(list(range(args.num_shards)), args.images_per_shard)
    features = extractor.collect()
    np.save(out, features)
    log.info("wrote %s %s in %.1f s", out, features.shape, time.time() - t0)


if __name__ == "__main__":
    main()
