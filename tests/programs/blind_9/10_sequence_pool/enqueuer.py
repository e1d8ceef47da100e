import queue
import random
import threading


class OrderedEnqueuer:
    """Keeps a bounded number of pool results in flight."""

    def __init__(self, sequence, pool, fetch, max_in_flight, seed):
        self.sequence, self.pool, self.fetch = sequence, pool, fetch
        self.futures = queue.Queue(maxsize=max_in_flight)
        self.rng = random.Random(seed)
        self.thread = threading.Thread(target=self._run, name="enqueuer", daemon=True)

    def start(self):
        self.thread.start()

    def _run(self):
        while True:
            order = list(range(len(self.sequence)))
            self.rng.shuffle(order)
            for i in order:
                self.futures.put(self.pool.apply_async(self.fetch, (self.sequence, i)))

    def batch(self, n):
        return [self.futures.get().get() for _ in range(n)]
