import argparse
import logging
import multiprocessing as mp
import os
import tempfile

import torch

from clouds import export_scans
from features import Normalizer, extract

log = logging.getLogger("main")


def parse_args():
    p = argparse.ArgumentParser(description="Extract pairwise features of point clouds in parallel")
    p.add_argument("--scans", type=int, default=90)
    p.add_argument("--workers", type=int, default=3)
    p.add_argument("--neighbours", type=int, default=16)
    p.add_argument("--bins", type=int, default=64)
    p.add_argument("--seed", type=int, default=7)
    p.add_argument("--out", default=None)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    work = args.out or tempfile.mkdtemp(prefix="pointfeat_")
    paths = export_scans(os.path.join(work, "scans"), args.scans, args.seed)
    norm = Normalizer().fit(paths)
    log.info("%d scans, mean %s, scale %s", len(paths), norm.mean.tolist(), norm.scale.tolist())

    features = {}
    total = torch.zeros(args.bins, dtype=torch.int64)
    jobs = [(path, norm, args.neighbours, args.bins) for path in paths]
    with mp.Pool(args.workers) as pool:
        for path, hist, near in pool.imap(extract, jobs):
            features[path] = near
            total += hist
            if len(features) % 10 == 0:
                log.info("%d of %d scans done", len(features), len(paths))
    torch.save({"near": features, "hist": total}, os.path.join(work, "features.pt"))
    log.info("wrote %s", os.path.join(work, "features.pt"))


if __name__ == "__main__":
    main()
