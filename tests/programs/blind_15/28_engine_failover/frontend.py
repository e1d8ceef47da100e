"""Sends requests to whichever engine is the leader."""
import json
import logging
import os
import random
import socket
import time

log = logging.getLogger("frontend")


def connect(folder):
    while True:
        try:
            with open(os.path.join(folder, "endpoint")) as f:
                return socket.create_connection(("127.0.0.1", int(f.read())), timeout=10)
        except (OSError, ValueError):
            time.sleep(0.2)


def run_frontend(folder, duration, rate):
    rng = random.Random(7)
    conn = connect(folder)
    stream = conn.makefile("rwb")
    start, n, latency = time.time(), 0, 0.0
    while time.time() - start < duration:
        t = time.time()
        stream.write(json.dumps({"id": n, "seed": n, "tokens": rng.randrange(16, 96)}).encode() + b"\n")
        stream.flush()
        answer = json.loads(stream.readline())
        assert answer["id"] == n
        n += 1
        latency += time.time() - t
        if n % 200 == 0:
            log.info("%d requests, %.1f ms on average", n, 1000 * latency / n)
        time.sleep(rng.expovariate(rate))
    conn.close()
    log.info("frontend done: %d requests", n)
