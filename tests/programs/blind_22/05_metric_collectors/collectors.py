"""Collectors sample counters and enqueue them for the handlers."""
import dataclasses
import os
import time

import numpy as np


@dataclasses.dataclass
class Metric:
    path: str
    timestamp: float
    values: np.ndarray


class Collector:
    name = "base"
    interval = 0.1

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def collect(self):
        raise NotImplementedError


class LatencyCollector(Collector):
    name = "latency"

    def collect(self):
        yield "histogram", self.rng.exponential(12.0, size=26_000)


class ActivationCollector(Collector):
    name = "activations"

    def collect(self):
        yield "layer0", self.rng.normal(size=(13, 1000))
        yield "layer1", self.rng.normal(size=(13, 1000))


class LoadCollector(Collector):
    name = "load"

    def collect(self):
        values = self.rng.random(26_000)
        values[:3] = os.getloadavg()
        yield "cpu", values


COLLECTORS = [LatencyCollector, ActivationCollector, LoadCollector]


def collector_main(cls, seed, queue, host):
    collector = cls(seed)
    due = time.monotonic()
    while True:
        for name, values in collector.collect():
            queue.put(Metric(f"servers.{host}.{collector.name}.{name}", time.time(), values))
        due += collector.interval
        time.sleep(max(0.0, due - time.monotonic()))
