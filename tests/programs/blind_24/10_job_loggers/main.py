"""Workload manager: matches jobs to sites and keeps the job monitor up to date."""
import argparse
import collections
import logging
import multiprocessing as mp
import queue
import time

import agent

log = logging.getLogger("wms")


class Monitor:
    """What the portal shows: counters and the most recent jobs."""

    def __init__(self, recent=200):
        self.count = collections.Counter()
        self.recent = collections.deque(maxlen=recent)

    def update(self, report):
        self.count[report["status"]] += 1
        self.recent.append((report["id"], report["status"], report["tail"]))


class Matcher:
    def __init__(self, args):
        self.args = args
        ctx = mp.get_context("spawn")
        self.requests, self.reports = ctx.Queue(maxsize=2 * args.sites), ctx.Queue()
        self.procs = [ctx.Process(target=agent.serve, name=f"site{i}", daemon=True,
                                  args=(f"site{i}", self.requests, self.reports, args.pace))
                      for i in range(args.sites)]
        self.monitor = Monitor()
        self.next_id = 0

    def drain(self):
        while True:
            try:
                self.monitor.update(self.reports.get_nowait())
            except queue.Empty:
                return

    def run(self):
        for p in self.procs:
            p.start()
        end = time.monotonic() + self.args.minutes * 60
        told = time.monotonic()
        while time.monotonic() < end:
            spec = {"id": self.next_id, "seed": self.next_id * 7 + 1, "events": self.args.events}
            self.next_id += 1
            self.requests.put(spec)
            self.drain()
            if time.monotonic() - told > 10:
                told = time.monotonic()
                log.info("submitted %d, %s", self.next_id, dict(self.monitor.count))
        for p in self.procs:
            p.terminate()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--sites", type=int, default=2)
    ap.add_argument("--events", type=int, default=4000)
    ap.add_argument("--pace", type=float, default=0.04, help="seconds between two jobs of a site")
    ap.add_argument("--minutes", type=float, default=2.1)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s [wms] %(message)s")
    Matcher(args).run()


if __name__ == "__main__":
    main()
