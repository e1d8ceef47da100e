"""Long independent fits."""
import time

import torch
from torch import nn


def fit(job):
    name, lr, seconds = job
    torch.set_num_threads(1)
    g = torch.Generator().manual_seed(len(name))
    x = torch.randn(400, 10, generator=g)
    y = (x[:, :3].prod(1, keepdim=True)).tanh()
    net = nn.Sequential(nn.Linear(10, 40), nn.Tanh(), nn.Linear(40, 1))
    opt = torch.optim.SGD(net.parameters(), lr)
    start, steps = time.monotonic(), 0
    while time.monotonic() - start < seconds:
        loss = nn.functional.mse_loss(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        steps += 1
        if steps % 200 == 0:
            print(f"{name}: {steps} steps, loss {loss.item():.4f}", flush=True)
        time.sleep(0.02)
    return name, steps, loss.item()
