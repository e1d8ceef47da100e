import logging
import os
import random
import socket
import threading
import time
from collections import Counter

from limiter import Limiter

log = logging.getLogger("fetcher")

# requests per second, burst; the archive asks for no more than one request in two seconds
SOURCES = {"cdn-a": (200.0, 50), "cdn-b": (200.0, 50), "mirror": (100.0, 20), "archive": (0.5, 12)}
SHARES = {"cdn-a": 0.45, "cdn-b": 0.30, "mirror": 0.15, "archive": 0.10}


class Fetcher:
    def __init__(self, port, out, threads, blob):
        self.port, self.out, self.blob = port, out, blob
        self.limiter = Limiter(SOURCES)
        self.counts = Counter()
        self.threads = [threading.Thread(target=self.loop, args=(i,), name=f"fetch-{i}", daemon=True)
                        for i in range(threads)]

    def loop(self, seed):
        rng = random.Random(seed)
        sock = socket.create_connection(("127.0.0.1", self.port))
        stream = sock.makefile("rwb")
        names, weights = list(SHARES), list(SHARES.values())
        while True:
            source = rng.choices(names, weights)[0]
            self.limiter.acquire(source)
            stream.write(f"{source} {rng.randrange(1 << 30)}\n".encode())
            stream.flush()
            blob = stream.read(self.blob)
            self.counts[source] += 1
            self.out.put((source, blob))

    def run(self):
        for t in self.threads:
            t.start()
        while True:
            time.sleep(5)
            log.info("fetched %s", dict(self.counts))


def main(port, out, threads, blob, max_seconds):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s", force=True)
    limit = threading.Timer(max_seconds, os._exit, (0,))
    limit.daemon = True
    limit.start()
    Fetcher(port, out, threads, blob).run()
