"""Text classification service: a frontend, two model workers and a load test."""
import argparse
import itertools
import logging
import os
import random
import threading
import time

import torch.multiprocessing as mp

from engine import worker_main

log = logging.getLogger("frontend")

MODEL_CONFIG = {
    "model_name": "topic-classifier",
    "batch_size": 16,
    "max_batch_delay": 2.0,
    "response_timeout": 120,
}


class Frontend:
    """Spreads requests over the model workers and hands back their answers."""

    def __init__(self, n_workers, config):
        ctx = mp.get_context("spawn")
        self.results = ctx.Queue()
        self.jobs = [ctx.Queue(maxsize=100) for _ in range(n_workers)]
        self.workers = [
            ctx.Process(target=worker_main, args=(f"worker-{i}", q, self.results, config), daemon=True)
            for i, q in enumerate(self.jobs)]
        self.ids = itertools.count()
        self.waiting = {}
        self.lock = threading.Lock()

    def start(self):
        for w in self.workers:
            w.start()
        threading.Thread(target=self._collect, daemon=True, name="responses").start()

    def _collect(self):
        while True:
            request_id, label = self.results.get()
            with self.lock:
                slot = self.waiting.pop(request_id, None)
            if slot is not None:
                slot["label"] = label
                slot["done"].set()

    def predict(self, tokens):
        request_id = next(self.ids)
        slot = {"done": threading.Event()}
        with self.lock:
            self.waiting[request_id] = slot
        self.jobs[request_id % len(self.jobs)].put((request_id, tokens))
        if not slot["done"].wait(MODEL_CONFIG["response_timeout"]):
            raise TimeoutError(request_id)
        return slot["label"]


class LoadTest:
    def __init__(self, frontend, clients):
        self.frontend, self.clients = frontend, clients
        self.latencies = []

    def _client(self, seed):
        rng = random.Random(seed)
        while True:
            tokens = [rng.randrange(10000) for _ in range(rng.randint(20, 160))]
            started = time.monotonic()
            self.frontend.predict(tokens)
            self.latencies.append(time.monotonic() - started)

    def run(self, duration):
        for i in range(self.clients):
            threading.Thread(target=self._client, args=(i,), daemon=True, name=f"client-{i}").start()
        end = time.monotonic() + duration
        while time.monotonic() < end:
            time.sleep(5)
            recent, self.latencies = self.latencies, []
            if recent:
                log.info("%.1f req/s, mean latency %.0f ms", len(recent) / 5,
                         1e3 * sum(recent) / len(recent))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--duration", type=float, default=125)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    frontend = Frontend(args.workers, MODEL_CONFIG)
    frontend.start()
    LoadTest(frontend, args.clients).run(args.duration)
    for w in frontend.workers:
        w.terminate()
    os._exit(0)
