import argparse
import logging
import os
import tempfile
import time

import numpy as np

from tasks import TaskRunner


class Model:
    def __init__(self, dim=64):
        self.rng = np.random.default_rng(0)
        self.w = self.rng.normal(size=(dim, dim))

    def step(self):
        x = self.rng.normal(size=(16, len(self.w)))
        self.w -= 1e-3 * x.T @ (x @ self.w)
        return float(np.abs(self.w).mean())

    def save(self, path):
        np.save(path, self.w)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--save-every", type=float, default=0.5)
    ap.add_argument("--max-time", type=float, default=90)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    with tempfile.TemporaryDirectory(prefix="ckpt_", dir=".") as folder:
        runner, model = TaskRunner(folder), Model()
        start, n = time.time(), 0
        while time.time() - start < args.max_time:
            t0 = time.time()
            while time.time() - t0 < args.save_every:
                value = model.step()
                time.sleep(0.02)
            path = os.path.join(folder, f"step{n:05d}.npy")
            model.save(path)
            runner.archive(path)
            n += 1
            if n % 10 == 0:
                logging.info("checkpoint %d weight %.4f", n, value)
                runner.summary()


if __name__ == "__main__":
    main()
