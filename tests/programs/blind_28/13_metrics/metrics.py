"""Metrics of the web workers, in the style of a Prometheus client."""
import threading
from bisect import bisect_left


class Value:
    def __init__(self):
        self._value = 0.0
        self._lock = threading.Lock()

    def inc(self, amount: float = 1.0):
        with self._lock:
            self._value += amount

    def get(self) -> float:
        with self._lock:
            return self._value


class Counter:
    def __init__(self):
        self.value = Value()

    def inc(self, amount: float = 1.0):
        self.value.inc(amount)


class Histogram:
    BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0)

    def __init__(self):
        self.total = Value()
        self.buckets = [Value() for _ in range(len(self.BOUNDS) + 1)]

    def observe(self, amount: float):
        self.total.inc(amount)
        self.buckets[bisect_left(self.BOUNDS, amount)].inc()


class Family:
    """All children of one metric, one per combination of label values."""

    def __init__(self, name: str, kind, labels: tuple[str, ...]):
        self.name, self.kind, self.names = name, kind, labels
        self._children = {}
        self._lock = threading.Lock()

    def labels(self, *values: str):
        with self._lock:
            child = self._children.get(values)
            if child is None:
                child = self._children[values] = self.kind()
            return child

    def collect(self):
        with self._lock:
            return list(self._children.items())


REQUESTS = Family("requests_total", Counter, ("method", "path", "status"))
LATENCY = Family("request_duration_seconds", Histogram, ("method", "path"))
MODEL_TIME = Family("model_duration_seconds", Histogram, ("method", "path"))
IN_BYTES = Family("request_size_bytes", Histogram, ("method", "path"))


def totals() -> dict:
    requests = sum(child.value.get() for _, child in REQUESTS.collect())
    seconds = sum(child.total.get() for _, child in LATENCY.collect())
    return {"requests": requests, "mean_ms": 1000 * seconds / max(requests, 1)}
