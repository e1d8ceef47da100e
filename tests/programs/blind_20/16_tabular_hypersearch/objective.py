"""One trial: trains an MLP on the tabular data and returns its validation loss."""
import functools
import logging
import signal
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from space import STATUS_FAIL, STATUS_OK


@functools.lru_cache(maxsize=1)
def data(seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(6000, 96)).astype(np.float32)
    w = rng.normal(size=(96, 8)).astype(np.float32)
    y = np.tanh(x @ w).sum(1) + 0.1 * rng.normal(size=len(x)).astype(np.float32)
    x, y = torch.from_numpy(x), torch.from_numpy(y.astype(np.float32))
    return x[:5600], y[:5600], x[5600:], y[5600:]


def init_worker(walltime):
    signal.alarm(walltime)
    torch.set_num_threads(1)
    logging.basicConfig(level=logging.WARNING)


def build(params, inputs):
    layers, width = [], inputs
    for _ in range(params["depth"]):
        layers += [nn.Linear(width, params["width"]), nn.ReLU(), nn.Dropout(params["dropout"])]
        width = params["width"]
    return nn.Sequential(*layers, nn.Linear(width, 1))


def train_and_score(params, seed, budget):
    started = time.monotonic()
    torch.manual_seed(seed)
    x, y, xv, yv = data(1234)
    model = build(params, x.shape[1])
    opt = torch.optim.Adam(model.parameters(), lr=params["lr"])
    while time.monotonic() - started < budget:
        pick = torch.randint(len(x), (params["batch_size"],))
        loss = F.mse_loss(model(x[pick]).squeeze(1), y[pick])
        opt.zero_grad()
        loss.backward()
        opt.step()
    model.eval()
    with torch.no_grad():
        score = F.mse_loss(model(xv).squeeze(1), yv).item()
    if not np.isfinite(score):
        return {"loss": float("inf"), "status": STATUS_FAIL}
    weights = {name: value.numpy() for name, value in model.state_dict().items()}
    return {"loss": score, "status": STATUS_OK, "model": weights}
