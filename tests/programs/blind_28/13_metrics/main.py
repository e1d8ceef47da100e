"""Embedding service: two web workers and the ingest job that posts every document of a crawl."""
import argparse
import http.client
import logging
import multiprocessing as mp
import random
import threading
import time
import uuid

from web import run_worker

log = logging.getLogger("ingest")
WORDS = "graph node edge layer sample batch kernel tensor index shard token merge".split()


class Ingest:
    def __init__(self, addresses, connections: int, pause: float):
        self.addresses, self.connections, self.pause = addresses, connections, pause
        self.posted = 0

    def post_documents(self, number: int):
        rng = random.Random(number)
        conn = http.client.HTTPConnection(*self.addresses[number % len(self.addresses)])
        while True:
            text = " ".join(rng.choices(WORDS, k=60))
            conn.request("POST", f"/v1/documents/{uuid.uuid4()}/embedding", text)
            response = conn.getresponse()
            response.read()
            self.posted += response.status == 200
            time.sleep(self.pause)

    def run(self):
        for number in range(self.connections):
            threading.Thread(target=self.post_documents, args=(number,), daemon=True).start()
        last = 0
        while True:
            time.sleep(5)
            log.info("%d documents posted, %.0f/s", self.posted, (self.posted - last) / 5)
            last = self.posted


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--pause", type=float, default=0.012)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s[%(process)d] %(message)s")
    ctx = mp.get_context("spawn")
    waiting = []
    for index in range(args.workers):
        ready, child = ctx.Pipe()
        ctx.Process(target=run_worker, args=(index, child), name=f"web-{index}", daemon=True).start()
        waiting.append(ready)
    addresses = [ready.recv() for ready in waiting]
    Ingest(addresses, args.connections, args.pause).run()


if __name__ == "__main__":
    main()
