"""One of several gloo ranks that work in steps; rank SLOW waits for its input in each of them."""

import os
import time

import torch
import torch.distributed as dist


def slow_input():
    time.sleep(2.0)


def compute(seconds):
    end_s = time.thread_time() + seconds
    while time.thread_time() < end_s:
        pass


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    gradient = torch.ones(1000)
    print("ready", flush=True)
    while True:
        compute(0.05)
        if os.environ["RANK"] == os.environ["SLOW"]:
            slow_input()
        dist.all_reduce(gradient)


if __name__ == "__main__":
    main()
