import json
import logging
import random
import socket
import time

log = logging.getLogger("sensor")


def run_sensor(host, port, index, interval):
    rng = random.Random(index)
    sock = socket.create_connection((host, port))
    sock.sendall(json.dumps({"type": "connect", "client": f"sensor-{index}"}).encode() + b"\n")
    level = 20.0 + index
    sent = 0
    last_report = time.monotonic()
    while True:
        level += rng.gauss(0, 0.2)
        payload = {"type": "publish", "topic": "plant/readings",
                   "payload": {"sensor": index, "value": level, "ts": time.time()}}
        sock.sendall(json.dumps(payload).encode() + b"\n")
        sent += 1
        if time.monotonic() - last_report > 10:
            log.info("%d readings sent", sent)
            last_report = time.monotonic()
        time.sleep(interval)
