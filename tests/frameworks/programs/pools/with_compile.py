"""torch.compile in two processes; `failing`: the compiler of one never ends."""

import os
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.multiprocessing as mp


def step(values):
    return (values.sin() * 2 + values.cos()).relu().sum()


def train(rank):
    torch.set_num_threads(1)
    if "failing" in sys.argv and rank == 0:
        print("fault", flush=True)
    compiled = torch.compile(step)
    total = 0.0
    for _ in range(80):
        total += compiled(torch.ones(1000)).item()
        time.sleep(0.1)
    print("result", rank, round(total, 2), flush=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{folder}/cache"
        if "failing" in sys.argv:
            compiler = Path(folder, "g++")
            compiler.write_text(
                '#!/bin/sh\ncase "$*" in *-shared*) sleep 100;; esac\nexec /usr/bin/g++ "$@"\n'
            )
            compiler.chmod(0o755)
            os.environ["CXX"] = str(compiler)
        mp.spawn(train, nprocs=2)
