import time

import torch
from torch import nn


def finetune(tenant, seconds=4):
    torch.set_num_threads(1)
    torch.manual_seed(tenant)
    net, t0 = nn.Linear(32, 32), time.time()
    while time.time() - t0 < seconds:
        x = torch.randn(64, 32)
        loss = (net(x) - x).pow(2).mean()
        net.zero_grad()
        loss.backward()
        with torch.no_grad():
            for p in net.parameters():
                p -= 0.1 * p.grad
        time.sleep(0.01)
    torch.save(net.state_dict(), f"/tmp/tenant_{tenant}.pt")
