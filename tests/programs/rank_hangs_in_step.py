"""Ranks of gloo that work in steps; once the file HANG exists, rank STUCK opens a FIFO for good.

It writes the time at which it does so, seconds since 1970, to the file HANG.at.
"""

import os
import time

import torch
import torch.distributed as dist


def save_checkpoint(path):
    fifo = f"{path}.fifo"
    os.mkfifo(fifo)
    with open(f"{path}.at", "w") as file:
        file.write(f"{time.time():.3f}")
    with open(fifo) as reader:
        reader.read()


def compute(seconds):
    end_s = time.thread_time() + seconds
    while time.thread_time() < end_s:
        pass


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    is_stuck = os.environ["RANK"] == os.environ["STUCK"]
    gradient = torch.ones(1000)
    while True:
        time.sleep(1.0)
        compute(0.01)
        if is_stuck and os.path.exists(os.environ["HANG"]):
            save_checkpoint(os.environ["HANG"])
        dist.all_reduce(gradient)


if __name__ == "__main__":
    main()
