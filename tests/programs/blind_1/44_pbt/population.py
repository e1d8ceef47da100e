import io
import time

import torch
from torch import nn


def smoke_test():
    """One step in the parent: fails early if something is badly installed."""
    torch.set_num_threads(1)
    net = nn.Linear(16, 1)
    opt = torch.optim.SGD(net.parameters(), lr=1e-3)
    net(torch.randn(4, 16)).sum().backward()
    opt.step()


def member(idx, lr, blob, reports):
    torch.set_num_threads(1)
    net = nn.Linear(16, 1)
    if blob:
        net.load_state_dict(torch.load(io.BytesIO(blob)))
    opt = torch.optim.SGD(net.parameters(), lr=lr)
    w = torch.linspace(-1, 1, 16)
    step = 0
    while True:
        x = torch.randn(64, 16)
        loss = (net(x)[:, 0] - x @ w - 0.3 * torch.randn(64)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        step += 1
        time.sleep(0.03)
        if step % 25 == 0:
            b = io.BytesIO()
            torch.save(net.state_dict(), b)
            reports.put((idx, loss.item(), b.getvalue()))
