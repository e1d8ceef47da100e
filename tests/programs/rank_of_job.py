"""One rank of a job whose ranks are started one by one, by RANK and WORLD_SIZE; rank STUCK sleeps
in place of the collective that the others are in, and rank APART calls another one."""

import os
import time

import torch
import torch.distributed as dist


def save_checkpoint():
    time.sleep(600)


def send_weights():
    dist.broadcast(torch.ones(3), src=0)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    dist.barrier()
    print("ready", flush=True)
    if os.environ["RANK"] == os.environ.get("STUCK"):
        save_checkpoint()
    if os.environ["RANK"] == os.environ.get("APART"):
        send_weights()
    dist.all_reduce(torch.ones(3))


if __name__ == "__main__":
    main()
