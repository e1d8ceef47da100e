"""Start a job on a port where another one still listens.

The earlier job's first rank has been left over. It holds the store's port, and nothing in the error
of the new one says who it is.
"""

import time
from datetime import timedelta

import torch.distributed as dist
import torch.multiprocessing as mp

from mpwatch.demo.bounds import begin


def earlier_job(ports):
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    ports.put(store.port)
    time.sleep(1000)


def main():
    seconds = begin(__doc__)
    until_s = time.monotonic() + seconds
    ports = mp.SimpleQueue()
    mp.Process(target=earlier_job, args=(ports,), daemon=True).start()
    port = ports.get()
    ready = False
    while time.monotonic() < until_s:
        try:
            dist.TCPStore("127.0.0.1", port, 1, True, timedelta(seconds=5))
        except RuntimeError as error:
            print(f"cannot start: {str(error).splitlines()[0]}", flush=True)
        if not ready:
            print("ready", flush=True)
            ready = True
        time.sleep(2)


if __name__ == "__main__":
    main()
