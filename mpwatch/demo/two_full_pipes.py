"""Send to each other before either receives: both wait until the other one takes something out.

It works for as long as what is sent fits into the connection, so it works in the tests.
"""

import time

import numpy as np
import torch.multiprocessing as mp

from mpwatch.demo.bounds import begin


def exchange(connection, size):
    while True:
        connection.send(np.zeros(size))
        connection.recv()
        time.sleep(0.2)
        size *= 4


def main():
    begin(__doc__)
    here, there = mp.Pipe()
    mp.Process(target=exchange, args=(there, 1000), daemon=True).start()
    print("ready", flush=True)
    exchange(here, 1000)


if __name__ == "__main__":
    main()
