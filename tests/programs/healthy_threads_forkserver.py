"""Threads in the main process, workers from a fork server: the safe way to have both."""

import threading
import time

import torch
from torch.utils.data import DataLoader, TensorDataset

from mpwatch.demo.bounds import begin

lock = threading.Lock()


def report(until_s: float) -> None:
    while time.monotonic() < until_s:
        with lock:
            time.sleep(0.2)
        time.sleep(0.01)


def main() -> None:
    seconds = begin(__doc__)
    until_s = time.monotonic() + seconds
    reporter = threading.Thread(target=report, args=(until_s,), name="reporter")
    reporter.start()
    loader = DataLoader(
        TensorDataset(torch.arange(100_000.0)),
        batch_size=8,
        num_workers=2,
        multiprocessing_context="forkserver",
    )
    for step, _batch in enumerate(loader):
        if step == 10:
            print("ready", flush=True)
        if time.monotonic() > until_s:
            break
        time.sleep(0.03)
    reporter.join()


if __name__ == "__main__":
    main()
