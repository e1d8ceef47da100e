"""Write a log record by record, each through to the disk.

fsync returns when the disk has the record, which takes some milliseconds, however short it is.
"""

import json
import os
import tempfile
import time

import torch
import torch.multiprocessing as mp

from mpwatch.demo.bounds import begin, mended

FOLDER = "/var/tmp"
"""On a disk, unlike /tmp on many machines."""


def log(file, step, norms):
    for name, norm in norms.items():
        file.write(json.dumps({"step": step, "name": name, "norm": norm}).encode() + b"\n")
        file.flush()
        if not mended():
            os.fsync(file.fileno())


def train(seconds):
    torch.set_num_threads(1)
    until_s = time.monotonic() + seconds
    weights = [torch.randn(64, 64) for _ in range(12)]
    with tempfile.TemporaryFile(dir=FOLDER) as file:
        step = 0
        while time.monotonic() < until_s:
            norms = {f"layer{n}": float(weight.norm()) for n, weight in enumerate(weights)}
            log(file, step, norms)
            if mended():
                file.seek(0)
                time.sleep(0.01)
            step += 1


def main():
    seconds = begin(__doc__)
    runs = [mp.Process(target=train, args=(seconds,), name=f"train-{n}") for n in range(2)]
    for run in runs:
        run.start()
    print("ready", flush=True)
    for run in runs:
        run.join()


if __name__ == "__main__":
    main()
