import argparse
import multiprocessing as mp
import os
import tempfile
import time

import numpy as np

from store import Run


class LinearProbe:
    def __init__(self, rank, layers=24, dim=48):
        self.rng = np.random.default_rng(rank)
        self.ws = [self.rng.normal(size=(dim, dim)) * 0.1 for _ in range(layers)]

    def step(self):
        x = self.rng.normal(size=(32, self.ws[0].shape[0]))
        norms = {}
        for i, w in enumerate(self.ws):
            x = np.tanh(x @ w)
            g = x.T @ x / len(x)
            w -= 0.001 * g
            norms[f"grad_norm/layer{i}"] = float(np.linalg.norm(g))
            norms[f"weight_norm/layer{i}"] = float(np.linalg.norm(w))
        return norms


def probe(rank, folder, max_time):
    run, model = Run(os.path.join(folder, f"probe{rank}")), LinearProbe(rank)
    start, step = time.time(), 0
    while time.time() - start < max_time:
        run.log(step, model.step())
        step += 1
        if step % 20 == 0:
            print(f"[probe {rank}] step {step} {step / (time.time() - start):.1f} it/s", flush=True)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--probes", type=int, default=2)
    ap.add_argument("--max-time", type=float, default=90)
    args = ap.parse_args()
    with tempfile.TemporaryDirectory(prefix="swanlog_", dir=".") as folder:
        procs = [mp.Process(target=probe, args=(r, folder, args.max_time), name=f"probe-{r}")
                 for r in range(args.probes)]
        for p in procs:
            p.start()
        for p in procs:
            p.join()


if __name__ == "__main__":
    main()
