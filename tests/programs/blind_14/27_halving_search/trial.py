"""One trial: train with a configuration, report the score after every epoch."""
import signal
import sys
import time

import torch
from torch import nn


class Stopped(Exception):
    pass


def on_term(signum, frame):
    raise Stopped


def make_net(config):
    layers, width = [], 64
    for _ in range(config["layers"]):
        layers += [nn.Linear(width, config["hidden"]), nn.ReLU(), nn.Dropout(config["dropout"])]
        width = config["hidden"]
    return nn.Sequential(*layers, nn.Linear(width, 10))


def dataset(seed=0, n=2048):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 64, generator=g)
    teacher = torch.randn(64, 10, generator=g)
    return x, (x @ teacher + torch.randn(n, 10, generator=g)).argmax(1)


def run_trial(number, config, max_epochs, reports):
    signal.signal(signal.SIGTERM, on_term)
    torch.set_num_threads(1)
    torch.manual_seed(number)
    x, y = dataset()
    net = make_net(config)
    params = list(net.parameters())
    try:
        for epoch in range(1, max_epochs + 1):
            for start in range(0, 1536, config["batch_size"]):
                rows = slice(start, min(start + config["batch_size"], 1536))
                loss = nn.functional.cross_entropy(net(x[rows]), y[rows])
                grads = torch.autograd.grad(loss, params)
                with torch.no_grad():
                    for p, g in zip(params, grads):
                        p -= config["lr"] * g
                time.sleep(0.02)
            with torch.no_grad():
                net.eval()
                accuracy = (net(x[1536:]).argmax(1) == y[1536:]).float().mean().item()
                net.train()
            reports.send((epoch, accuracy))
    except Stopped:
        sys.exit(0)
