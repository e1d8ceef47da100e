import argparse
import os
import queue
import random
import tempfile
import time

import torch
import torch.multiprocessing as mp
from torch import nn

from runlog import setup_logger


class Trial:
    def __init__(self, number, params, run_dir):
        self.number = number
        self.params = params
        self.logger = setup_logger(run_dir)
        self.model = nn.Linear(16, 1)
        self.opt = torch.optim.SGD(self.model.parameters(), lr=params["lr"])

    def run(self, steps):
        value = 0.0
        for step in range(steps):
            x = torch.randn(16, 16)
            loss = (self.model(x).squeeze() - x.sum(1)).pow(2).mean()
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            value = loss.item()
            if step % 5 == 0:
                self.logger.info("trial %d step %d loss %.5f", self.number, step, value)
        self.logger.info("trial %d finished with %.5f", self.number, value)
        return value


def worker_main(tasks, results, root, steps, pause):
    torch.set_num_threads(1)
    while True:
        task = tasks.get()
        if task is None:
            break
        number, params = task
        value = Trial(number, params, os.path.join(root, f"trial_{number:05d}")).run(steps)
        results.put((number, value))
        time.sleep(pause)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--trials", type=int, default=1500)
    p.add_argument("--steps", type=int, default=20)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--pause", type=float, default=0.12)
    p.add_argument("--root", default=None)
    args = p.parse_args()
    with tempfile.TemporaryDirectory(prefix="sweep_", dir=args.root) as root:
        tasks, results = mp.Queue(), mp.Queue()
        procs = [mp.Process(target=worker_main, args=(tasks, results, root, args.steps, args.pause), daemon=True)
                 for _ in range(args.workers)]
        for pr in procs:
            pr.start()
        rng = random.Random(0)
        for n in range(args.trials):
            tasks.put((n, {"lr": 10 ** rng.uniform(-4, -2)}))
        for _ in procs:
            tasks.put(None)
        best = None
        for i in range(args.trials):
            number, value = results.get()
            if best is None or value < best[1]:
                best = (number, value)
            if i % 20 == 0:
                print(f"{time.strftime('%H:%M:%S')} {i} trials, best {best[0]} with {best[1]:.4f}", flush=True)
        for pr in procs:
            pr.join()


if __name__ == "__main__":
    main()
