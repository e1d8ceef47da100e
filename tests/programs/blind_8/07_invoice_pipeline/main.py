import argparse
import logging
import multiprocessing as mp
import queue
import time
from collections import Counter

from pipeline.jobs import JobSource
from pipeline.worker import PartitionWorker

log = logging.getLogger("invoices")


class Dispatcher:
    def __init__(self, partitions):
        self.results = mp.Queue()
        self.inboxes = [mp.Queue() for _ in range(partitions)]
        self.workers = [PartitionWorker(i, box, self.results) for i, box in enumerate(self.inboxes)]
        self.sent = Counter()
        self.done = Counter()

    def start(self):
        for w in self.workers:
            w.start()

    def send(self, job):
        part = job["id"] % len(self.inboxes)
        self.inboxes[part].put(job)
        self.sent[part] += 1

    def collect(self):
        while True:
            try:
                part, _ = self.results.get_nowait()
            except queue.Empty:
                return
            self.done[part] += 1

    def stop(self):
        for w in self.workers:
            w.terminate()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--partitions", type=int, default=3)
    p.add_argument("--rate", type=float, default=12)
    p.add_argument("--duration", type=float, default=140)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")

    dispatcher = Dispatcher(args.partitions)
    dispatcher.start()
    deadline = time.time() + args.duration
    report = time.time() + 5
    for job in JobSource():
        dispatcher.send(job)
        dispatcher.collect()
        time.sleep(1 / args.rate)
        if time.time() > report:
            log.info("processed %d invoices", sum(dispatcher.done.values()))
            report += 5
        if time.time() > deadline:
            break
    dispatcher.stop()


if __name__ == "__main__":
    main()
