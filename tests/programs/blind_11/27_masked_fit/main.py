"""Bootstrap fits over random subsets of a large measurement cube."""
import argparse
import logging
import time

import numpy as np

from fitting import fit_subset
from parallel import Parallel, delayed

log = logging.getLogger("maskedfit")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=150)
    parser.add_argument("--samples", type=int, default=11000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")

    rng = np.random.default_rng(args.seed)
    cube = rng.random((10, args.samples, 4, 2), dtype=np.float32)
    estimates = []
    with Parallel(n_jobs=args.jobs) as parallel:
        for it in range(args.iterations):
            t0 = time.time()
            subsets = (cube[:, rng.random(cube.shape[1]) > 0.6] for _ in range(args.jobs))
            results = parallel(delayed(fit_subset)(subset, it) for subset in subsets)
            estimates.extend(results)
            if it % 10 == 0:
                spread = np.std([e[0] for e in estimates])
                log.info("iteration %d: slope %.5f +- %.5f (%.2f s)", it, results[0][0], spread,
                         time.time() - t0)
            time.sleep(max(0.0, 0.85 - (time.time() - t0)))
    log.info("%d estimates", len(estimates))


if __name__ == "__main__":
    main()
