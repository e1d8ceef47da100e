"""Start the similarity service and put a steady load on it."""
import argparse
import json
import logging
import multiprocessing as mp
import random
import socket
import struct
import time

import torch

from app import SimilarityApp
from server import Master, read_exact

WORDS = ("river bridge evening market signal copper forest engine winter paper window garden "
         "teacher railway island pattern silver doctor").split()


def run_server(args, pipe):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s[%(process)d] %(message)s")
    torch.set_num_threads(1)
    master = Master(SimilarityApp(), args.host, args.workers, args.max_requests, args.max_requests_jitter)
    master.run(lambda address: pipe.send(address))


class LoadClient:
    def __init__(self, address, seed):
        self.address = tuple(address)
        self.rng = random.Random(seed)
        self.times = []
        self.failed = 0

    def sentence(self):
        return " ".join(self.rng.choices(WORDS, k=self.rng.randint(5, 14)))

    def request(self):
        body = json.dumps({"query": self.sentence(), "documents": [self.sentence() for _ in range(24)]}).encode()
        begin = time.perf_counter()
        with socket.create_connection(self.address, timeout=10) as conn:
            conn.sendall(struct.pack("!I", len(body)) + body)
            (length,) = struct.unpack("!I", read_exact(conn, 4))
            reply = json.loads(read_exact(conn, length))
        self.times.append(time.perf_counter() - begin)
        return reply["scores"]

    def run(self, rate, seconds, report_every, log):
        start = last = time.monotonic()
        while time.monotonic() - start < seconds:
            begin = time.monotonic()
            try:
                self.request()
            except OSError as exc:
                self.failed += 1
                log.warning("request failed: %s", exc)
            if time.monotonic() - last > report_every:
                recent = sorted(self.times)
                log.info("%.1f req/s, median %.1f ms, p99 %.1f ms, failed %d",
                         len(recent) / (time.monotonic() - last), 1000 * recent[len(recent) // 2],
                         1000 * recent[int(0.99 * (len(recent) - 1))], self.failed)
                self.times.clear()
                last = time.monotonic()
            time.sleep(max(0.0, self.rng.expovariate(rate) - (time.monotonic() - begin)))


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--host", default="127.0.0.1")
    p.add_argument("--workers", type=int, default=3)
    p.add_argument("--max-requests", type=int, default=60)
    p.add_argument("--max-requests-jitter", type=int, default=20)
    p.add_argument("--rate", type=float, default=50.0)
    p.add_argument("--seconds", type=float, default=120.0)
    p.add_argument("--report-every", type=float, default=10.0)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s[%(process)d] %(message)s")
    ctx = mp.get_context("spawn")
    parent, child = ctx.Pipe()
    server = ctx.Process(target=run_server, args=(args, child), name="master")
    server.start()
    address = parent.recv()
    LoadClient(address, seed=2).run(args.rate, args.seconds, args.report_every, logging.getLogger("load"))
    server.terminate()
    server.join()


if __name__ == "__main__":
    main()
