"""Trainer that drops a checkpoint from time to time and a benchmark process next to it."""
import argparse
import logging
import multiprocessing as mp
import os
import tempfile
import time

import torch
from torch import nn

from model import SineNet, sample
from watch import benchmark_loop

log = logging.getLogger("train")


def save(directory, number, net):
    tmp = os.path.join(directory, f".ckpt-{number:04d}.tmp")
    torch.save({"number": number, "model": net.state_dict()}, tmp)
    os.replace(tmp, os.path.join(directory, f"ckpt-{number:04d}.pt"))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--checkpoints", type=int, default=6)
    ap.add_argument("--every", type=float, default=16.0, help="seconds between checkpoints")
    ap.add_argument("--dir", default=None)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    directory = args.dir or tempfile.mkdtemp(prefix="bench_run_")
    bench = mp.get_context("fork").Process(target=benchmark_loop, args=(directory, args.checkpoints), name="bench")
    bench.start()
    net = SineNet()
    opt = torch.optim.Adam(net.parameters(), 1e-3)
    log.info("training, a checkpoint every %.0fs in %s", args.every, directory)
    step, saved, due = 0, 0, time.monotonic() + args.every
    while saved < args.checkpoints:
        step += 1
        x, y = sample(128, seed=step)
        loss = nn.functional.mse_loss(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if time.monotonic() >= due:
            saved, due = saved + 1, due + args.every
            save(directory, saved, net)
            log.info("checkpoint %d at step %d, loss %.4f", saved, step, loss.item())
        time.sleep(0.025)
    bench.join()
    log.info("finished")


if __name__ == "__main__":
    main()
