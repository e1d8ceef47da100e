"""Benchmarks each checkpoint as it appears in the run directory."""
import glob
import logging
import os
import time

import torch

from model import SineNet, sample

log = logging.getLogger("bench")


def wait_for_checkpoint(directory, last, interval=1.0):
    while True:
        found = sorted(glob.glob(os.path.join(directory, "ckpt-*.pt")))
        if found and found[-1] != last:
            return found[-1]
        time.sleep(interval)


def benchmark_loop(directory, total):
    torch.set_num_threads(1)
    last = None
    while True:
        last = wait_for_checkpoint(directory, last)
        state = torch.load(last)
        net = SineNet()
        net.load_state_dict(state["model"])
        with torch.no_grad():
            x, y = sample(2048, seed=123)
            err = (net(x) - y).abs().mean().item()
        log.info("%s: error %.4f", os.path.basename(last), err)
        if state["number"] >= total:
            return
