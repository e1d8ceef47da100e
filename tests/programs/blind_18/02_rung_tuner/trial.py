import signal
import time

import torch
from torch import nn


def make_data(seed=0, n=512):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 12, generator=g)
    y = torch.sin(x[:, :3].sum(1, keepdim=True)) + 0.1 * torch.randn(n, 1, generator=g)
    return x, y


def build(config):
    layers, width = [], 12
    for _ in range(config["depth"]):
        layers += [nn.Linear(width, config["hidden"]), nn.Tanh()]
        width = config["hidden"]
    layers.append(nn.Linear(width, 1))
    return nn.Sequential(*layers)


def run_trial(trial_id, config, conn, epochs, epoch_seconds, walltime):
    signal.alarm(walltime)
    torch.set_num_threads(1)
    torch.manual_seed(trial_id)
    x, y = make_data()
    model = build(config)
    opt = torch.optim.SGD(model.parameters(), lr=config["lr"], momentum=0.9)
    for epoch in range(1, epochs + 1):
        begun = time.monotonic()
        for _ in range(20):
            opt.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            opt.step()
        left = epoch_seconds - (time.monotonic() - begun)
        if left > 0:
            time.sleep(left)
        conn.send((epoch, float(loss.detach())))
    conn.close()
