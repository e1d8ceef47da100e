import argparse
import logging
import multiprocessing as mp
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
import numpy as np

import memguard

log = logging.getLogger("invert")
N_IFG = 60


def init_worker(limit_mb):
    memguard.start(limit_mb)


def invert_patch(patch):
    """Least squares displacement for every pixel of one patch; patches over land are larger."""
    index, pixels = patch
    rng = np.random.default_rng(index)
    design = rng.standard_normal((N_IFG, 20))
    unw = rng.standard_normal((N_IFG, pixels))
    out = np.empty((20, pixels))
    step = 2000
    pinv = np.linalg.pinv(design)
    cov = []
    for s in range(0, pixels, step):
        block = unw[:, s:s + step]
        out[:, s:s + step] = pinv @ block
        cov.append((block - design @ out[:, s:s + step]) ** 2)
    var = np.concatenate(cov, axis=1).mean(axis=0)
    return index, float(np.sqrt(var).mean()), float(np.abs(out).mean())


def make_patches(n):
    sizes = 30_000 + (np.arange(n) * 7919 % 13) * 6_000
    sizes[n // 3] = 420_000
    return [(i, int(s)) for i, s in enumerate(sizes)]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--patches", type=int, default=60)
    p.add_argument("--n-para", type=int, default=3)
    p.add_argument("--mem-per-worker", type=int, default=350, help="MB")
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    patches = make_patches(args.patches)
    log.info("inverting %d patches, %d pixels", len(patches), sum(s for _, s in patches))
    with mp.Pool(args.n_para, initializer=init_worker, initargs=(args.mem_per_worker,)) as pool:
        results = []
        for index, resid, vel in pool.imap_unordered(invert_patch, patches):
            results.append((index, resid, vel))
            if len(results) % 10 == 0:
                log.info("%d/%d patches done", len(results), len(patches))
    log.info("mean residual %.3f", np.mean([r for _, r, _ in results]))


if __name__ == "__main__":
    main()
