"""Exit a producer of CUDA tensors while its consumer still uses them.

The consumer has only mapped the memory of the producer, which is freed with the producer's process.
"""

import time

import torch
import torch.multiprocessing as mp

from mpwatch.demo.bounds import begin, mended

WORK_S = 5


def produce(queue, is_done):
    for number in range(8):
        queue.put(torch.full((1024, 1024), float(number), device="cuda"))
    time.sleep(WORK_S)  # in place of its last work
    if mended():
        is_done.wait()


def main():
    until_s = time.monotonic() + begin(__doc__)
    context = mp.get_context("spawn")
    queue, is_done = context.Queue(), context.Event()
    producer = context.Process(target=produce, args=(queue, is_done))
    producer.start()
    tensors = [queue.get() for _ in range(8)]
    print("ready", flush=True)
    while time.monotonic() < until_s:
        time.sleep(1)
        if not producer.is_alive():
            print(f"the producer ended with {producer.exitcode}", flush=True)
            time.sleep(max(0, until_s - time.monotonic()))
        total = sum(tensor.sum().item() for tensor in tensors)
        print(f"sum {total:.0f}", flush=True)
    del tensors
    is_done.set()
    producer.join()


if __name__ == "__main__":
    main()
