"""Retraining service: replicated scheduler, one trainer process."""
import argparse
import logging
import multiprocessing as mp
import os
import signal
import tempfile
import time

import torch
from torch import nn

from replica import Replica

log = logging.getLogger("service")


class SegmentModel:
    """Demand model of one segment, refitted on the latest window."""

    def __init__(self, name):
        self.name = name
        self.version = 0
        torch.manual_seed(sum(map(ord, name)))
        self.net = nn.Sequential(nn.Linear(24, 32), nn.ReLU(), nn.Linear(32, 1))
        self.coef = torch.randn(24, 1)

    def window(self, n=256):
        x = torch.randn(n, 24)
        return x, x @ self.coef + 0.2 * torch.randn(n, 1)

    def refit(self, steps):
        x, y = self.window()
        opt = torch.optim.Adam(self.net.parameters(), lr=1e-2)
        for _ in range(steps):
            loss = nn.functional.mse_loss(self.net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        self.version += 1
        return loss.item()


def trainer(jobs, results, steps, walltime):
    signal.alarm(walltime)
    torch.set_num_threads(1)
    models = {}
    while True:
        job = jobs.get()
        model = models.setdefault(job["model"], SegmentModel(job["model"]))
        begun = time.monotonic()
        loss = model.refit(steps)
        results.put({**job, "version": model.version, "loss": loss, "took": time.monotonic() - begun})


class Service:
    def __init__(self, args, folder):
        self.args = args
        ctx = mp.get_context("fork")
        self.jobs, self.results = ctx.Queue(), ctx.Queue()
        next_job = ctx.Value("l", 0, lock=False)
        path = os.path.join(folder, "leader.lock")
        self.processes = [ctx.Process(target=trainer, name="trainer", daemon=True,
                                      args=(self.jobs, self.results, args.steps, args.walltime))]
        for name in args.replicas.split(","):
            replica = Replica(name, path, self.jobs, next_job, args.term, args.period)
            self.processes.append(ctx.Process(target=replica.run, args=(args.walltime,),
                                              name=f"scheduler-{name}", daemon=True))

    def run(self):
        for p in self.processes:
            p.start()
        end = time.monotonic() + self.args.duration
        while time.monotonic() < end:
            r = self.results.get(timeout=30)
            log.info("job %d by %s: %s version %d loss %.4f in %.2f s", r["job"], r["by"], r["model"],
                     r["version"], r["loss"], r["took"])
        for p in self.processes:
            p.terminate()
            p.join()


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--replicas", default="ams,fra,lon")
    p.add_argument("--term", type=float, default=50, help="seconds a leader keeps the lock")
    p.add_argument("--period", type=float, default=2.5, help="seconds between retraining jobs")
    p.add_argument("--steps", type=int, default=150)
    p.add_argument("--duration", type=float, default=120)
    p.add_argument("--walltime", type=int, default=140)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    signal.alarm(args.walltime)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="retrain-") as folder:
        Service(args, folder).run()
    log.info("service stopped")


if __name__ == "__main__":
    main()
