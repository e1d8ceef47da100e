import argparse
import logging
import multiprocessing as mp
import os
import tempfile
import time

import numpy as np

from evaluator import Evaluator


def evaluate(folder):
    Evaluator(folder).run()


class Trainer:
    def __init__(self, folder, keep=3):
        self.folder, self.keep = folder, keep
        self.rng = np.random.default_rng(0)
        self.w = np.zeros((32, 1))
        self.saved = []

    def step(self):
        x = self.rng.normal(size=(256, 32))
        self.w -= 0.002 * x.T @ (x @ self.w - x[:, :1]) / len(x)

    def save(self, step):
        path = os.path.join(self.folder, f"step{step:07d}")
        np.save(path, self.w)
        self.saved.append(path + ".npy")
        while len(self.saved) > self.keep:
            os.remove(self.saved.pop(0))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--save-every", type=float, default=20)
    ap.add_argument("--max-time", type=float, default=90)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    with tempfile.TemporaryDirectory(prefix="ckpt_", dir=".") as folder:
        ev = mp.Process(target=evaluate, args=(folder,), name="evaluator", daemon=True)
        ev.start()
        trainer, start, step, last = Trainer(folder), time.time(), 0, time.time()
        while time.time() - start < args.max_time:
            trainer.step()
            step += 1
            time.sleep(0.004)
            if step % 500 == 0:
                logging.info("step %d |w| %.3f", step, float(np.linalg.norm(trainer.w)))
            if time.time() - last > args.save_every:
                last = time.time()
                trainer.save(step)
        ev.terminate()
        ev.join()


if __name__ == "__main__":
    main()
