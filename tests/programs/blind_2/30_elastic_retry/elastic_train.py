import argparse
import logging
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel as DDP


def mount_dataset(path, rank):
    """The object store mount is empty for a few seconds after the job starts; the next attempt finds it."""
    marker = path / f"mounted-{rank}"
    if not marker.exists():
        path.mkdir(parents=True, exist_ok=True)
        marker.touch()
        time.sleep(2)
        if rank == 1:
            raise FileNotFoundError(f"{path}/train-00000.tar")
    return torch.Generator().manual_seed(rank)


@record
def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=1500)
    args = p.parse_args()
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0))
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s rank{rank} attempt{attempt} %(message)s")
    data = mount_dataset(Path("/tmp") / f"mnt-{os.environ['TORCHELASTIC_RUN_ID']}", rank)
    dist.init_process_group("gloo")
    model = DDP(nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)))
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(args.steps):
        x = torch.randn(32, 64, generator=data)
        y = x[:, :10].argmax(1)
        loss = nn.functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        time.sleep(0.03)
        if step % 100 == 0:
            logging.info("step %d loss %.3f", step, loss.item())
    dist.destroy_process_group()
    logging.info("finished")


if __name__ == "__main__":
    main()
