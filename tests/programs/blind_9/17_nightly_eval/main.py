"""Continual training: whenever a new data drop arrives the model is trained on it, then everybody waits."""
import argparse
import logging
import multiprocessing as mp
import os
import tempfile
import time

import torch
from torch import nn

from evaluator import run_evaluator
from optim import MomentumSgd

log = logging.getLogger("trainer")


def build_model():
    return nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 4))


class Ingest:
    """Delivers a drop of examples every `period` seconds."""

    def __init__(self, queue, period, seed):
        self.queue, self.period = queue, period
        self.g = torch.Generator().manual_seed(seed)
        self.w = torch.randn(20, 4, generator=self.g)

    def make(self, n):
        x = torch.randn(n, 20, generator=self.g)
        return x, (x @ self.w).argmax(1)

    def run(self):
        while True:
            x, y = self.make(2000)
            self.queue.put((x.numpy(), y.numpy()))
            time.sleep(self.period)


def train_on_drop(model, opt, x, y, seconds):
    end, n = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        i = torch.randint(0, len(x), (64,))
        loss = nn.functional.cross_entropy(model(x[i]), y[i])
        opt.zero_grad()
        loss.backward()
        opt.step()
        n += 1
        time.sleep(0.005)
    return n, loss.item()


def main(args):
    torch.set_num_threads(1)
    ctx = mp.get_context("fork")
    with tempfile.TemporaryDirectory(prefix="ckpt_") as d:
        drops = ctx.Queue(maxsize=2)
        ingest = Ingest(drops, args.period, 1)
        ctx.Process(target=ingest.run, name="ingest", daemon=True).start()
        ctx.Process(target=run_evaluator, args=(d, args.poll, build_model, ingest.make(500)), name="evaluator",
                    daemon=True).start()
        model = build_model()
        opt = MomentumSgd(model.parameters(), 0.01)
        drop = 0
        while True:
            log.info("waiting for drop %d (expected every %.0f s)", drop, args.period)
            x, y = drops.get()
            n, loss = train_on_drop(model, opt, torch.from_numpy(x), torch.from_numpy(y), args.train_seconds)
            tmp = os.path.join(d, f"drop{drop:03d}.tmp")
            torch.save(model.state_dict(), tmp)
            os.replace(tmp, tmp[:-4] + ".pt")
            log.info("drop %d: %d steps, loss %.4f", drop, n, loss)
            drop += 1


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--period", type=float, default=40)
    ap.add_argument("--train-seconds", type=float, default=5)
    ap.add_argument("--poll", type=float, default=4)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    main(ap.parse_args())
