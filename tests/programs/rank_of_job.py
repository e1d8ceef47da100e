"""One rank of a job whose ranks are started one by one, by RANK and WORLD_SIZE; rank STUCK sleeps
in place of the collective that the others are in, and rank APART calls another one.

Without RANK it has NODE_RANK, and numbers itself as Lightning does on nodes of one device; or
NUMBER, which only torch is told. With HOOKED it has the hook."""

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
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    elif "NUMBER" in os.environ:
        rank, world_size = (int(os.environ[name]) for name in ("NUMBER", "COUNT"))
        dist.init_process_group("gloo", rank=rank, world_size=world_size)
    else:
        os.environ.update(LOCAL_RANK="0", WORLD_SIZE=os.environ["NODES"])
        rank, world_size = (int(os.environ[name]) for name in ("NODE_RANK", "WORLD_SIZE"))
        dist.init_process_group("gloo", rank=rank, world_size=world_size)
    dist.barrier()
    print("ready", flush=True)
    if str(dist.get_rank()) == os.environ.get("STUCK"):
        save_checkpoint()
    if str(dist.get_rank()) == os.environ.get("APART"):
        send_weights()
    dist.all_reduce(torch.ones(3))


if __name__ == "__main__":
    if os.environ.get("HOOKED"):
        import mpwatch

        mpwatch.instrument()
    main()
