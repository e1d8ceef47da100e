"""One trial of the sweep: a small regression net trained from a line of options."""
import argparse
import logging
import os
import time

import torch
from torch import nn

log = logging.getLogger("trial")

ACTS = {"relu": nn.ReLU, "gelu": nn.GELU, "silu": nn.SiLU, "tanh": nn.Tanh}


def trial_parser():
    p = argparse.ArgumentParser(prog="trial", add_help=False)
    p.add_argument("--lr", type=float, default=1e-2)
    p.add_argument("--width", type=int, default=64)
    p.add_argument("--depth", type=int, default=2)
    p.add_argument("--act", choices=sorted(ACTS), default="relu")
    p.add_argument("--steps", type=int, default=400)
    p.add_argument("--seed", type=int, default=0)
    return p


def make_net(cfg):
    layers, d = [], 8
    for _ in range(cfg.depth):
        layers += [nn.Linear(d, cfg.width), ACTS[cfg.act]()]
        d = cfg.width
    return nn.Sequential(*layers, nn.Linear(d, 1))


def run_trial(line):
    cfg = trial_parser().parse_args(line.split())
    torch.set_num_threads(1)
    torch.manual_seed(cfg.seed)
    x = torch.randn(512, 8)
    y = torch.sin(x.sum(1, keepdim=True)) + 0.1 * torch.randn(512, 1)
    net = make_net(cfg)
    params = list(net.parameters())
    velocity = [torch.zeros_like(p) for p in params]
    t0 = time.time()
    for _ in range(cfg.steps):
        loss = nn.functional.mse_loss(net(x), y)
        with torch.no_grad():
            for p, v, g in zip(params, velocity, torch.autograd.grad(loss, params)):
                v.mul_(0.9).add_(g)
                p.sub_(cfg.lr * v)
    return {"line": line, "loss": loss.item(), "seconds": time.time() - t0, "pid": os.getpid()}
