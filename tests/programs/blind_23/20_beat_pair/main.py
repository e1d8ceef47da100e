"""Brings up the forecasting service: two beats for availability, two workers."""
import argparse
import logging
import multiprocessing as mp
import os
import tempfile
import threading
import time

from schedule import Beat, Entry
from tasks import work

ENTRIES = [
    Entry("periodic-heartbeat", "heartbeat", every=6.0),
    Entry("refit-north", "refit", every=4.0),
    Entry("refit-south", "refit", every=7.0),
]


def beat_process(name, root, outbox, until):
    guard = threading.Timer(until + 15 - time.time(), os._exit, args=(0,))
    guard.daemon = True
    guard.start()
    Beat(name, root, ENTRIES, outbox).start(until)


def worker_process(number, inbox, until):
    guard = threading.Timer(until + 15 - time.time(), os._exit, args=(0,))
    guard.daemon = True
    guard.start()
    work(number, inbox, until)


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--beats", type=int, default=2)
    p.add_argument("--seconds", type=float, default=115.0)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s [%(process)d] %(message)s")
    root = tempfile.mkdtemp(prefix="beat-")
    until = time.time() + args.seconds
    broker = mp.Queue()
    processes = [mp.Process(target=worker_process, args=(n, broker, until), name=f"worker-{n}", daemon=True)
                 for n in range(args.workers)]
    processes += [mp.Process(target=beat_process, args=(f"beat-{n}", root, broker, until), name=f"beat-{n}",
                             daemon=True) for n in range(args.beats)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()


if __name__ == "__main__":
    main()
