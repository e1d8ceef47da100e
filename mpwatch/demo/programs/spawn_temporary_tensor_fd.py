"""Send a packed tensor to a spawned process that exists only while it is being pickled.

Packing many small tensors into one in `__getstate__` is the usual fix for too many descriptors.
Under spawn the child gets the number of a descriptor that is closed, or refers to another file, by
the time it starts.
"""

import time

import torch
import torch.multiprocessing as mp

from mpwatch.demo.bounds import begin, mended


class Samples:
    def __init__(self):
        self.parts = [torch.full((100,), float(index)) for index in range(50)]
        self.packed = torch.cat(self.parts)

    def __getstate__(self):
        return {"packed": self.packed if mended() else torch.cat(self.parts)}


def use(samples):
    for _ in range(100):
        samples.packed.sum()
        time.sleep(0.1)


def main():
    seconds = begin(__doc__)
    until_s = time.monotonic() + seconds
    spawn = mp.get_context("spawn")
    samples = Samples()
    ready = False
    while time.monotonic() < until_s:
        worker = spawn.Process(target=use, args=(samples,))
        worker.start()
        worker.join()
        print(f"worker ended with {worker.exitcode}", flush=True)
        if not ready:
            print("ready", flush=True)
            ready = True


if __name__ == "__main__":
    main()
