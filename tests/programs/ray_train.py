"""Ray Train with two workers on a running cluster; rank 1 sleeps in place of a collective."""

import os
import sys
import time

import ray
import torch
import torch.distributed as dist
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer


def save_checkpoint():
    time.sleep(600)


def train():
    open(f"{os.environ['STARTED']}-{dist.get_rank()}", "w").close()
    if dist.get_rank() == 1:
        save_checkpoint()
    dist.all_reduce(torch.ones(3))


def main():
    address, folder = sys.argv[1:]
    variables = {"STARTED": f"{folder}/started"}
    ray.init(address=address, log_to_driver=False, runtime_env={"env_vars": variables})
    TorchTrainer(
        train,
        scaling_config=ScalingConfig(num_workers=2, use_gpu=False),
        run_config=RunConfig(storage_path=folder),
    ).fit()


if __name__ == "__main__":
    main()
