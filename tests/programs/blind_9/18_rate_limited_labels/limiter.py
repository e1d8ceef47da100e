import time


class WindowQuota:
    """At most `quota` requests per window, shared by all the workers (teacher service contract)."""

    def __init__(self, ctx, quota, window):
        self.quota, self.window = quota, window
        self.lock = ctx.Lock()
        self.start = ctx.Value("d", 0.0, lock=False)
        self.used = ctx.Value("i", 0, lock=False)

    def take(self):
        while True:
            with self.lock:
                now = time.monotonic()
                if now - self.start.value >= self.window:
                    self.start.value, self.used.value = now, 0
                if self.used.value < self.quota:
                    self.used.value += 1
                    return
                pause = self.window - (now - self.start.value)
            time.sleep(max(pause, 0.01))
