"""Wait at a barrier for a process that has failed on its way there.

A barrier counts who has arrived and knows nothing of processes. One trainer stops at a loss that is
no number; the others wait for it before every step from then on, and main waits for them.
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
