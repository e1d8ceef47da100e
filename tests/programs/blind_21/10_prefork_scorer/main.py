"""Starts the scoring workers and passes the night batches of transactions on as they come in."""
import argparse
import json
import logging
import multiprocessing as mp
import os
import random
import socket
import threading
import time

import server

log = logging.getLogger("intake")


class Intake:
    """Transactions are few at night; they are scored in the order of arrival."""

    def __init__(self, port, features, gap, seed):
        self.port, self.features, self.gap = port, features, gap
        self.rng = random.Random(seed)
        self.batches = self.alarms = 0

    def score(self, rows):
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as sock:
            with sock.makefile("rwb") as stream:
                stream.write(json.dumps(rows).encode() + b"\n")
                stream.flush()
                return json.loads(stream.readline())

    def run(self, until):
        while time.time() < until:
            rows = [[self.rng.gauss(0, 1) for _ in range(self.features)]
                    for _ in range(self.rng.randrange(1, 40))]
            started = time.perf_counter()
            scores = self.score(rows)
            took = time.perf_counter() - started
            self.batches += 1
            self.alarms += sum(s > 0.6 for s in scores)
            log.info("batch %d: %d transactions scored in %.1f ms, %d alarms so far",
                     self.batches, len(scores), 1000 * took, self.alarms)
            time.sleep(self.rng.expovariate(1 / self.gap))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--workers", type=int, default=4)
    p.add_argument("--features", type=int, default=48)
    p.add_argument("--gap", type=float, default=6.0, help="mean seconds between two batches")
    p.add_argument("--seed", type=int, default=2)
    p.add_argument("--max-seconds", type=float, default=105)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    port = listener.getsockname()[1]
    ctx = mp.get_context("fork")
    accept_lock = ctx.Lock()
    workers = [
        ctx.Process(target=server.worker_main, name=f"worker{i}", daemon=True,
                    args=(i, listener.fileno(), accept_lock, args.features, args.max_seconds + 12))
        for i in range(args.workers)
    ]
    for w in workers:
        w.start()
    listener.detach()
    limit = threading.Timer(args.max_seconds + 10, os._exit, (0,))
    limit.daemon = True
    limit.start()
    log.info("listening on port %d with %d workers", port, args.workers)
    Intake(port, args.features, args.gap, args.seed).run(time.time() + args.max_seconds)
    for w in workers:
        w.terminate()
        w.join()
    log.info("night is over")


if __name__ == "__main__":
    main()
