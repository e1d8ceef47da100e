"""Queues with acknowledgement, kept by a process of their own."""
import itertools
import threading
import time
from collections import deque
from multiprocessing.managers import BaseManager


class Broker:
    def __init__(self):
        self.lock = threading.Lock()
        self.ids = itertools.count(1)
        self.ready = deque()
        self.unacked = {}
        self.acked = 0

    def publish(self, payload):
        with self.lock:
            self.ready.append((next(self.ids), payload))

    def basic_get(self, consumer):
        with self.lock:
            if not self.ready:
                return None
            delivery = self.ready.popleft()
            self.unacked[delivery[0]] = (consumer, delivery)
            return delivery

    def ack(self, tag):
        with self.lock:
            if self.unacked.pop(tag, None) is not None:
                self.acked += 1

    def connection_lost(self, consumer):
        with self.lock:
            lost = [tag for tag, (who, _) in self.unacked.items() if who == consumer]
            for tag in lost:
                self.ready.appendleft(self.unacked.pop(tag)[1])
            return len(lost)

    def stats(self):
        with self.lock:
            return {"ready": len(self.ready), "unacked": len(self.unacked), "acked": self.acked,
                    "published": len(self.ready) + len(self.unacked) + self.acked}


class BrokerManager(BaseManager):
    pass


BrokerManager.register("Broker", Broker)
