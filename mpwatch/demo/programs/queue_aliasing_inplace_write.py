"""Go on writing to a tensor that was put on a queue.

The queue keeps a reference, not a copy: the consumer reads what the producer has written since.
"""

import time

import torch
import torch.multiprocessing as mp

from mpwatch.demo.bounds import begin, mended


def consume(queue):
    step = wrong = 0
    while True:
        sent_as, values = queue.get()
        time.sleep(0.05)
        step += 1
        wrong += int(values[0].item() != sent_as)
        if step % 20 == 0:
            print(f"{wrong} of {step} messages changed on the way", flush=True)


def main():
    seconds = begin(__doc__)
    until_s = time.monotonic() + seconds
    queue = mp.Queue(maxsize=4)
    mp.Process(target=consume, args=(queue,), daemon=True).start()
    # In shared memory from the start: a write while the queue's feeder thread moves a tensor there
    # goes to freed memory (torch 2.13), and may crash this program before it shows its failure.
    values = torch.zeros(1000).share_memory_()
    step = 0
    while time.monotonic() < until_s:
        step += 1
        values.fill_(step)
        queue.put((step, values.clone() if mended() else values))
        if step == 20:
            print("ready", flush=True)


if __name__ == "__main__":
    main()
