"""A training of DistributedDataParallel by a launcher that sets RANK."""

import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(10, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for _ in range(60):
        optimizer.zero_grad()
        loss = model(torch.ones(4, 10)).square().mean()
        loss.backward()
        optimizer.step()
        time.sleep(0.1)
    print("result", os.environ["RANK"], round(loss.item(), 6), flush=True)
    dist.destroy_process_group()
