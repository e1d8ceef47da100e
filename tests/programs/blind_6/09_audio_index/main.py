"""Build a similarity index over a folder of clips."""
import argparse
import logging
import multiprocessing as mp
import os
import tempfile

import torch

from features import extract, write_clip

log = logging.getLogger("index")


class ClipIndex:
    def __init__(self):
        self.names, self.rows = [], []

    def add_all(self, results):
        for name, row in results:
            self.names.append(name)
            self.rows.append(torch.from_numpy(row))

    def neighbours(self, i, k=3):
        m = torch.nn.functional.normalize(torch.stack(self.rows), dim=1)
        return [self.names[j] for j in (m @ m[i]).topk(k).indices.tolist()]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--clips", type=int, default=180)
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--root", default=None)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    root = args.root or tempfile.mkdtemp(prefix="clips_")
    paths = []
    for i in range(args.clips):
        path = os.path.join(root, f"clip{i:04d}.bin")
        write_clip(path, i)
        paths.append(path)
    log.info("%d clips in %s", len(paths), root)

    index = ClipIndex()
    with mp.get_context("fork").Pool(args.workers) as pool:
        try:
            index.add_all(pool.map(extract, paths, chunksize=6))
        except Exception:
            log.exception("extraction failed")
            raise SystemExit(1)
    log.info("index of %d clips, e.g. %s", len(index.names), index.neighbours(0))


if __name__ == "__main__":
    main()
