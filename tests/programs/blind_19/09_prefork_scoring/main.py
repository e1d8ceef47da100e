"""Credit scoring service with preforked workers, and the checkout traffic that uses it."""
import argparse
import http.client
import json
import logging
import multiprocessing as mp
import random
import signal
import time
from collections import Counter

from server import ScoringApp, ScoringWorker, bind

log = logging.getLogger("arbiter")


def worker_main(listener):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    ScoringWorker(listener, ScoringApp()).run()


def percentile(values, q):
    values = sorted(values)
    return values[min(len(values) - 1, int(q * len(values)))]


def traffic_main(port, rate, seconds):
    """Checkout: one scoring request per basket, baskets arrive at the given rate."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    rng = random.Random(5)
    started = last = time.time()
    per_worker, latency, errors, total = Counter(), [], 0, 0
    while time.time() - started < seconds:
        time.sleep(rng.uniform(0.6, 1.4) / rate)
        rows = [[rng.gauss(0, 1) for _ in range(32)] for _ in range(rng.randint(1, 8))]
        tick = time.time()
        try:
            c = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            c.request("POST", "/score", json.dumps({"rows": rows}))
            reply = json.loads(c.getresponse().read())
            c.close()
            per_worker[reply["worker"]] += 1
        except OSError as e:
            errors += 1
            log.warning("request failed: %s", e)
        latency.append(time.time() - tick)
        total += 1
        if time.time() - last > 10:
            log.info("%d requests, %.1f/s, p50 %.1f ms, p99 %.1f ms, %d errors, by worker %s", total,
                     len(latency) / (time.time() - last), 1e3 * percentile(latency, 0.5),
                     1e3 * percentile(latency, 0.99), errors, dict(per_worker))
            latency, last = [], time.time()


class Arbiter:
    def __init__(self, args):
        self.args = args
        self.listener = bind()
        self.port = self.listener.getsockname()[1]
        self.workers = []

    def spawn(self):
        p = mp.Process(target=worker_main, args=(self.listener,), name="worker", daemon=True)
        p.start()
        self.workers.append(p)

    def manage(self):
        for p in list(self.workers):
            if not p.is_alive():
                log.warning("worker %d exited with %s", p.pid, p.exitcode)
                self.workers.remove(p)
        while len(self.workers) < self.args.workers:
            self.spawn()

    def run(self):
        self.manage()
        traffic = mp.Process(target=traffic_main, args=(self.port, self.args.rate, self.args.seconds),
                             name="traffic", daemon=True)
        traffic.start()
        while traffic.is_alive():
            self.manage()
            time.sleep(1.0)
        for p in self.workers:
            p.terminate()
        for p in self.workers:
            p.join(timeout=6)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--workers", type=int, default=4)
    p.add_argument("--rate", type=float, default=15.0)
    p.add_argument("--seconds", type=float, default=120)
    args = p.parse_args()
    mp.set_start_method("fork")
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    arbiter = Arbiter(args)
    log.info("listening on 127.0.0.1:%d", arbiter.port)
    arbiter.run()


if __name__ == "__main__":
    main()
