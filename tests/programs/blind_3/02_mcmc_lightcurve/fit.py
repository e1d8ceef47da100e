import argparse
import logging
import multiprocessing as mp
import time

import numpy as np

from model import LightCurveModel

log = logging.getLogger("fit")


class EnsembleSampler:
    def __init__(self, nwalkers, dim, lnprob, pool):
        self.nwalkers, self.dim = nwalkers, dim
        self.lnprob = lnprob
        self.pool = pool
        self.rng = np.random.default_rng(1)

    def _evaluate(self, points):
        return np.array(self.pool.map(self.lnprob, points, chunksize=1))

    def sample(self, p0):
        p, lp = p0, self._evaluate(p0)
        while True:
            z = ((self.rng.random(self.nwalkers) + 1) ** 2) / 2
            partner = p[self.rng.permutation(self.nwalkers)]
            q = partner + z[:, None] * (p - partner)
            lq = self._evaluate(q)
            ok = np.log(self.rng.random(self.nwalkers)) < (self.dim - 1) * np.log(z) + lq - lp
            p = np.where(ok[:, None], q, p)
            lp = np.where(ok, lq, lp)
            yield p, lp, ok.mean()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--workers", type=int, default=3)
    ap.add_argument("--walkers", type=int, default=16)
    ap.add_argument("--epochs", type=int, default=160000)
    ap.add_argument("--max-time", type=float, default=90)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    model = LightCurveModel(args.epochs, n_bands=6)
    start = time.time()
    with mp.Pool(args.workers) as pool:
        sampler = EnsembleSampler(args.walkers, 4, model.lnprob, pool)
        p0 = np.random.default_rng(2).normal(size=(args.walkers, 4))
        for i, (p, lp, acc) in enumerate(sampler.sample(p0)):
            log.info("step %d best %.1f acceptance %.2f (%.2f s/step)", i, lp.max(), acc,
                     (time.time() - start) / (i + 1))
            if time.time() - start > args.max_time:
                break


if __name__ == "__main__":
    main()
