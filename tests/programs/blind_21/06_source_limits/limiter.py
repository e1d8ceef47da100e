import threading
import time


class TokenBucket:
    def __init__(self, rate, burst):
        self.rate, self.burst = rate, burst
        self.tokens = float(burst)
        self.updated = time.monotonic()

    def _refill(self):
        now = time.monotonic()
        self.tokens = min(self.burst, self.tokens + (now - self.updated) * self.rate)
        self.updated = now

    def take(self):
        self._refill()
        if self.tokens >= 1:
            self.tokens -= 1
            return True
        return False

    def wait_time(self):
        return max(0.0, (1 - self.tokens) / self.rate)


class Limiter:
    """One bucket per source; acquire() returns once the caller may send its request."""

    def __init__(self, rates):
        self._lock = threading.Lock()
        self._buckets = {name: TokenBucket(rate, burst) for name, (rate, burst) in rates.items()}

    def acquire(self, source):
        with self._lock:
            bucket = self._buckets[source]
            while not bucket.take():
                time.sleep(bucket.wait_time())
