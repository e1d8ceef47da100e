"""Wait at a barrier for a process that failed before it arrived.

A barrier counts arrivals and does not notice exits. One trainer raises an exception when its loss
is not a number; the others wait for it at the barrier before every step, and main waits for them.
"""

import time

import torch
import torch.multiprocessing as mp

from mpwatch.demo.bounds import begin, mended

TRAINERS = 3
FAILS_AFTER = 20


def train(number, barrier):
    torch.set_num_threads(1)
    step = 0
    while True:
        loss = torch.randn(100).square().mean()
        time.sleep(0.05)
        step += 1
        if number == 1 and step == FAILS_AFTER and not mended():
            raise FloatingPointError(f"step {step}: the loss is {loss * float('nan')}")
        barrier.wait()


def main():
    begin(__doc__)
    barrier = mp.Barrier(TRAINERS)
    trainers = [
        mp.Process(target=train, args=(number, barrier), daemon=True) for number in range(TRAINERS)
    ]
    for trainer in trainers:
        trainer.start()
    print("ready", flush=True)
    for trainer in trainers:
        trainer.join()


if __name__ == "__main__":
    main()
