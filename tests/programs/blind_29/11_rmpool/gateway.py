"""Client side of the reward model pool."""
import itertools
import json
import logging
import socket
import time

log = logging.getLogger("gateway")


class RewardGateway:
    def __init__(self, endpoints, attempts=4, backoff=0.15, timeout=10.0):
        self.endpoints = list(endpoints)
        self.rotation = itertools.cycle(self.endpoints)
        self.attempts = attempts
        self.backoff = backoff
        self.timeout = timeout

    def _send(self, endpoint, payload):
        with socket.create_connection(endpoint, timeout=self.timeout) as conn:
            conn.sendall(payload)
            with conn.makefile("rb") as answer:
                return json.loads(answer.readline())

    def _send_with_retry(self, endpoint, payload):
        for attempt in range(self.attempts):
            try:
                return self._send(endpoint, payload)
            except OSError as err:
                log.debug("%s:%d attempt %d: %s", *endpoint, attempt + 1, err)
                if attempt + 1 == self.attempts:
                    raise
                time.sleep(self.backoff * 2 ** attempt)

    def score(self, sequences):
        payload = json.dumps({"sequences": sequences}).encode() + b"\n"
        for _ in range(len(self.endpoints)):
            endpoint = next(self.rotation)
            try:
                return self._send_with_retry(endpoint, payload)["scores"]
            except OSError:
                log.debug("%s:%d gave up, next replica", *endpoint)
        raise RuntimeError("no reward replica answered")
