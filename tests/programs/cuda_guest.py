"""Programs on a GPU: `cuda_guest.py WHAT [FILE]`.

    hold      keeps 512 MiB of tensors
    ipc       sends tensors to a child and prints what it computes from them
    waits     waits in torch.cuda.synchronize for a kernel of some seconds, again and again
    frees     frees cached memory on a thread, which waits for a kernel with the allocator's lock
    cpu       uses torch, and no GPU

A thread of `waits` and `frees` writes to FILE how often it has had the GIL so far. `frees` begins
with SIGUSR1.
"""

import hashlib
import os
import signal
import sys
import threading
import time

import torch
import torch.multiprocessing as mp

KERNEL_S = 12
CYCLES_A_SECOND = 1_900_000_000
"""Of the cards that this runs on; a kernel that takes longer or shorter does as well."""


def run_kernel(seconds):
    torch.cuda._sleep(int(seconds * CYCLES_A_SECOND))


def hold():
    tensors = [torch.ones(64 << 18, device="cuda") for _ in range(8)]
    torch.cuda.synchronize()
    print("reserved", torch.cuda.memory_reserved(), torch.cuda.memory_allocated(), flush=True)
    time.sleep(600)
    del tensors


def receive(queue, answers):
    while (tensor := queue.get()) is not None:
        answers.put(float(tensor.sum()))
        del tensor


def ipc():
    torch.cuda.manual_seed(7)
    context = mp.get_context("spawn")
    queue, answers = context.Queue(), context.Queue()
    child = context.Process(target=receive, args=(queue, answers))
    child.start()
    for size in range(1, 40):
        tensor = torch.rand(size * 1000, device="cuda")
        queue.put(tensor)
        print("sum", answers.get() == float(tensor.sum()), float(tensor.sum()), flush=True)
    queue.put(None)
    child.join()
    state = hashlib.sha256(torch.cuda.get_rng_state().numpy().tobytes()).hexdigest()
    print("state", state, child.exitcode, flush=True)


def count_turns():
    file = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT)
    number = 0
    while True:
        number += 1
        os.pwrite(file, b"%d" % number, 0)
        time.sleep(0.05)


def waits():
    threading.Thread(target=count_turns, daemon=True).start()
    tensor = torch.ones(1000, device="cuda")
    print("ready", flush=True)
    rounds = 0
    while True:
        run_kernel(KERNEL_S)
        torch.cuda.synchronize()
        rounds += 1
        print("round", rounds, float(tensor.sum()), flush=True)


def free():
    tensor = torch.ones(64 << 20, device="cuda")
    del tensor
    run_kernel(2 * KERNEL_S)
    print("freeing", flush=True)
    torch.cuda.empty_cache()
    print("freed", flush=True)


def frees():
    torch.ones(1, device="cuda")
    threading.Thread(target=count_turns, daemon=True).start()
    begin = threading.Event()
    signal.signal(signal.SIGUSR1, lambda *_: begin.set())
    print("ready", flush=True)
    while not begin.wait(0.1):
        pass
    threading.Thread(target=free, daemon=True).start()
    time.sleep(600)


def cpu():
    print("sum", float(torch.ones(1000).sum()), flush=True)
    time.sleep(3)
    print("initialised", torch.cuda.is_initialized(), flush=True)


if __name__ == "__main__":
    {"hold": hold, "ipc": ipc, "waits": waits, "frees": frees, "cpu": cpu}[sys.argv[1]]()
