"""Training from a rolling sample archive, with the archive's maintenance jobs running next to it."""
import argparse
import logging
import multiprocessing as mp
import tempfile
import time

import torch

from archive import Archive
from jobs import autosync_job, expire_job

log = logging.getLogger("train")


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--suites", nargs="+", default=["indoor", "outdoor", "night", "synthetic"])
    p.add_argument("--samples", type=int, default=200)
    p.add_argument("--features", type=int, default=64)
    p.add_argument("--steps", type=int, default=100000)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--sync-interval", type=float, default=0.2)
    p.add_argument("--expire-interval", type=float, default=4.0)
    p.add_argument("--keep", type=int, default=400)
    return p.parse_args()


def train(args, archive):
    model = torch.nn.Sequential(torch.nn.Linear(args.features, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    opt = torch.optim.SGD(model.parameters(), lr=1e-2)
    started = time.time()
    for step in range(1, args.steps + 1):
        suite = args.suites[step % len(args.suites)]
        x, y = archive.load_batch(suite, args.batch)
        loss = torch.nn.functional.mse_loss(model(x).squeeze(1), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0:
            log.info("step %d suite %s loss %.4f (%.1f s)", step, suite, loss.item(), time.time() - started)
        time.sleep(0.04)


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(levelname)s %(message)s")
    torch.set_num_threads(1)
    ctx = mp.get_context("fork")
    archive = Archive(tempfile.mkdtemp(prefix="archive_"), args.suites, args.features, ctx)
    archive.fill(args.samples)
    log.info("archive at %s", archive.root)
    jobs = [
        ctx.Process(target=autosync_job, args=(archive, args.sync_interval), name="autosync", daemon=True),
        ctx.Process(target=expire_job, args=(archive, args.expire_interval, args.keep), name="expire", daemon=True),
    ]
    for job in jobs:
        job.start()
    train(args, archive)


if __name__ == "__main__":
    main()
