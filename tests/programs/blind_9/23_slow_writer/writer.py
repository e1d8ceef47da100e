import time


class ThrottledWriter:
    """Writes blocks into a ring file of fixed size, not faster than the limit."""

    def __init__(self, path, mb_per_second, ring_mb=64):
        self.f = open(path, "wb")
        self.limit = mb_per_second * 2 ** 20
        self.ring = ring_mb * 2 ** 20
        self.t0 = time.monotonic()
        self.written = 0

    def write(self, block):
        if self.f.tell() + block.nbytes > self.ring:
            self.f.seek(0)
        self.f.write(block.tobytes())
        self.written += block.nbytes
        ahead = self.written / self.limit - (time.monotonic() - self.t0)
        if ahead > 0:
            time.sleep(ahead)

    def rate(self):
        return self.written / (time.monotonic() - self.t0) / 2 ** 20
