"""Serves a toy decoder with tensor parallel ranks and a load client."""
import argparse
import logging
import queue
import random
import socket
import time

import torch.multiprocessing as mp

from scheduler import run_scheduler

log = logging.getLogger("client")


class LoadClient:
    """Bursty traffic: some seconds of requests, then a pause."""

    def __init__(self, args, inbox, outbox):
        self.args, self.inbox, self.outbox = args, inbox, outbox
        self.rng = random.Random(args.seed)
        self.sent = 0
        self.outcome = {"finished": 0, "aborted": 0}

    def send(self):
        self.sent += 1
        self.inbox.put((self.sent, self.rng.randrange(512), self.rng.randint(8, 40)))

    def collect(self):
        while True:
            try:
                _, reason, _ = self.outbox.get_nowait()
            except queue.Empty:
                return
            self.outcome[reason] += 1

    def run(self):
        while True:
            end = time.monotonic() + self.args.burst
            while time.monotonic() < end:
                self.send()
                time.sleep(self.rng.expovariate(self.args.rate))
                self.collect()
            time.sleep(self.args.pause)
            self.collect()
            log.info("sent %d finished %d aborted %d", self.sent, self.outcome["finished"], self.outcome["aborted"])


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--tp", type=int, default=2)
    p.add_argument("--hidden", type=int, default=256)
    p.add_argument("--inner", type=int, default=1024)
    p.add_argument("--layers", type=int, default=4)
    p.add_argument("--max-running", type=int, default=8)
    p.add_argument("--waiting-timeout", type=float, default=0.5)
    p.add_argument("--rate", type=float, default=150.0)
    p.add_argument("--burst", type=float, default=1.5)
    p.add_argument("--pause", type=float, default=1.5)
    p.add_argument("--report-every", type=float, default=2.0)
    p.add_argument("--seed", type=int, default=1)
    return p.parse_args()


if __name__ == "__main__":
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    ctx = mp.get_context("fork")
    inbox, outbox, port = ctx.Queue(), ctx.Queue(), free_port()
    ranks = [ctx.Process(target=run_scheduler, args=(r, args, port, inbox, outbox), daemon=True)
             for r in range(args.tp)]
    for r in ranks:
        r.start()
    LoadClient(args, inbox, outbox).run()
