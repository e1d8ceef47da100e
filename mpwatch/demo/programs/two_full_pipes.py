"""Send in both directions before either side receives: both wait for the other one to read.

It works as long as the data fits into the connection, so it works in small tests.
"""

import time

import numpy as np
import torch.multiprocessing as mp

from mpwatch.demo.bounds import begin, mended

LARGEST = 1 << 18


def exchange(connection, is_first):
    size = 1000
    while True:
        if is_first:
            connection.send(np.zeros(size))
            connection.recv()
        else:
            connection.recv()
            connection.send(np.zeros(size))
        time.sleep(0.2)
        size = min(4 * size, LARGEST)


def main():
    begin(__doc__)
    here, there = mp.Pipe()
    mp.Process(target=exchange, args=(there, not mended()), daemon=True).start()
    print("ready", flush=True)
    exchange(here, True)


if __name__ == "__main__":
    main()
