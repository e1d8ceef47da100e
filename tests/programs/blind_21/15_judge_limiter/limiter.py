"""Rate limits shared by all labelling processes, one leaky bucket for every model endpoint."""
import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Rate:
    limit: int
    interval: float


class SharedBucket:
    """Ring of the times of the last `limit` calls, in shared memory."""

    def __init__(self, ctx, rate):
        self.rate = rate
        self.stamps = ctx.Array("d", [0.0] * rate.limit, lock=False)
        self.head = ctx.Value("i", 0, lock=False)

    def try_put(self, now):
        oldest = self.stamps[self.head.value]
        if now - oldest < self.rate.interval:
            return False
        self.stamps[self.head.value] = now
        self.head.value = (self.head.value + 1) % self.rate.limit
        return True

    def waiting(self, now):
        return max(0.0, self.stamps[self.head.value] + self.rate.interval - now)


class Limiter:
    def __init__(self, ctx, rates, buffer=0.002):
        self.lock = ctx.RLock()
        self.buckets = {name: SharedBucket(ctx, rate) for name, rate in rates.items()}
        self.buffer = buffer

    def _delay_waiter(self, bucket, timeout):
        deadline = time.monotonic() + timeout
        while not bucket.try_put(time.monotonic()):
            pause = bucket.waiting(time.monotonic()) + self.buffer
            if time.monotonic() + pause > deadline:
                return False
            time.sleep(pause)
        return True

    def try_acquire(self, name, timeout=60.0):
        with self.lock:
            return self._delay_waiter(self.buckets[name], timeout)
