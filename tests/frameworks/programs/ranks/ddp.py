"""A training of DistributedDataParallel by a launcher that sets RANK.

`failing`: rank 0 writes a checkpoint and then waits at a barrier, the other ranks do not.
"""

import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def save(model):
    print("fault", flush=True)
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    dist.barrier()
    return weights


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(10, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for step in range(100):
        optimizer.zero_grad()
        loss = model(torch.ones(4, 10)).square().mean()
        loss.backward()
        optimizer.step()
        if "failing" in sys.argv and step == 20 and dist.get_rank() == 0:
            save(model)
        time.sleep(0.1)
    print("result", os.environ["RANK"], round(loss.item(), 6), flush=True)
    dist.destroy_process_group()
