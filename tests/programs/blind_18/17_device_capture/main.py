import argparse
import logging
import multiprocessing as mp
import sys
import time
from dataclasses import dataclass

import numpy as np

from agent import serve
from connection import TargetConnection


@dataclass
class Sample:
    worker: int
    index: int
    uptime: float
    mean: float
    peak: int


def setup_logging(name):
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, force=True,
                        format="%(asctime)s " + name + " %(message)s")
    return logging.getLogger(name)


class Workload:
    """Short benchmark on the board, a fresh connection for each iteration."""

    def __init__(self, port, trace_size):
        self.port = port
        self.trace_size = trace_size

    def run_once(self, worker, index):
        with TargetConnection("127.0.0.1", self.port) as conn:
            up = conn.uptime()
            conn.capture(self.trace_size)
            spectrum = np.abs(np.fft.rfft(conn.window(0, 4096).astype(np.float32)))
            return Sample(worker, index, up, float(spectrum.mean()), int(spectrum.argmax()))


def bench_worker(worker, port, args, results):
    log = setup_logging(f"bench{worker}")
    workload = Workload(port, args.trace_size)
    period = 1.0 / args.rate
    end = time.monotonic() + args.duration
    index = 0
    due = time.monotonic()
    while time.monotonic() < end:
        results.put(workload.run_once(worker, index))
        index += 1
        if index % 50 == 0:
            log.info("%d iterations", index)
        due += period
        time.sleep(max(0.0, due - time.monotonic()))
    results.put(None)


class Report:
    def __init__(self):
        self.count = 0
        self.total = 0.0

    def add(self, sample):
        self.count += 1
        self.total += sample.mean

    def line(self):
        return "%d samples, mean level %.1f" % (self.count, self.total / max(1, self.count))


def main():
    p = argparse.ArgumentParser(description="repeat a workload on boards and summarise its traces")
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--rate", type=float, default=8.0, help="iterations per second and worker")
    p.add_argument("--trace-size", type=int, default=640 * 1024)
    p.add_argument("--duration", type=float, default=120.0)
    args = p.parse_args()
    log = setup_logging("main")

    ours, theirs = mp.Pipe()
    agent = mp.Process(target=serve, args=(theirs,), name="agent", daemon=True)
    agent.start()
    port = ours.recv()
    log.info("agent on port %d", port)

    results = mp.Queue(maxsize=64)
    workers = [mp.Process(target=bench_worker, args=(i, port, args, results), name=f"bench{i}")
               for i in range(args.workers)]
    for w in workers:
        w.start()
    report, open_workers = Report(), len(workers)
    while open_workers:
        item = results.get()
        if item is None:
            open_workers -= 1
            continue
        report.add(item)
        if report.count % 100 == 0:
            log.info(report.line())
    for w in workers:
        w.join()
    log.info("finished: %s", report.line())


if __name__ == "__main__":
    main()
