import argparse
import logging
import multiprocessing
import time

import torch

from patchmatch import compute_depthmap

log = logging.getLogger("dense")


class DenseReconstruction:
    def __init__(self, n_shots, processes):
        self.processes = processes
        g = torch.Generator().manual_seed(3)
        pts = torch.randint(20, 400, (n_shots,), generator=g).tolist()
        pts[min(79, n_shots - 1)] = 0
        self.shots = [{"id": i, "n_points": p} for i, p in enumerate(pts)]

    def compute_depthmaps(self):
        t0 = time.time()
        log.info("%d depth maps on %d processes", len(self.shots), self.processes)
        with multiprocessing.Pool(self.processes) as pool:
            done = pool.map(compute_depthmap, self.shots, chunksize=1)
        log.info("depth maps done in %.1fs", time.time() - t0)
        return done

    def fuse(self, maps):
        log.info("mean plane %.2f", sum(m for _, m in maps) / len(maps))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--shots", type=int, default=120)
    ap.add_argument("--processes", type=int, default=3)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    rec = DenseReconstruction(args.shots, args.processes)
    rec.fuse(rec.compute_depthmaps())


if __name__ == "__main__":
    main()
