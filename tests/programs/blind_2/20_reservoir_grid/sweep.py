import argparse
import logging
import resource
import time

import numpy as np
from joblib import Parallel, delayed

log = logging.getLogger("sweep")


def reservoir_states(inputs, size, radius, seed):
    rng = np.random.default_rng(seed)
    w = rng.standard_normal((size, size))
    w *= radius / np.sqrt(size)
    w_in = rng.standard_normal(size)
    state = np.zeros(size)
    states = np.empty((len(inputs), size))
    for t, u in enumerate(inputs):
        state = np.tanh(w @ state + w_in * u)
        states[t] = state
    return states


def evaluate(size, radius, seed, mem_gb):
    # batch nodes give every task a share of the address space
    limit = int(mem_gb * 2**30)
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))
    rng = np.random.default_rng(0)
    u = rng.uniform(-1, 1, 6000)
    target = np.roll(u, 4) * np.roll(u, 7)
    s = reservoir_states(u, size, radius, seed)
    # quadratic read-out
    idx = np.arange(0, size, 4)
    feats = np.concatenate([s, *[s[:, idx] * s[:, j:j + 1] for j in idx]], axis=1)
    coef = np.linalg.lstsq(feats[500:, :200], target[500:], rcond=None)[0]
    err = np.mean((feats[500:, :200] @ coef - target[500:]) ** 2)
    return size, radius, seed, float(err)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--sizes", type=int, nargs="+", default=[40, 80, 400])
    p.add_argument("--seeds", type=int, default=4)
    p.add_argument("--n-jobs", type=int, default=2)
    p.add_argument("--mem-gb", type=float, default=0.9)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    t0 = time.monotonic()
    for size in args.sizes:
        out = Parallel(n_jobs=args.n_jobs, backend="loky")(
            delayed(evaluate)(size, radius, seed, args.mem_gb)
            for radius in (0.7, 0.9, 1.1) for seed in range(args.seeds))
        best = min(out, key=lambda r: r[-1])
        log.info("size %d: best error %.4f at radius %.1f (%.0fs)", size, best[-1], best[1], time.monotonic() - t0)


if __name__ == "__main__":
    main()
