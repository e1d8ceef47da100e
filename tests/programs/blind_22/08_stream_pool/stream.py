"""Pull-style streams with a process pool stage."""
import multiprocessing as mp
import threading

_END = "__end_of_stream__"


class ProcessPool:
    """Applies `fn` to a stream of items in `size` processes; results come unordered."""

    def __init__(self, fn, size, depth=64):
        ctx = mp.get_context("fork")
        self._fn = fn
        self._in = ctx.Queue(maxsize=depth)
        self._out = ctx.Queue(maxsize=depth)
        self._procs = [ctx.Process(target=self._work, name=f"pool-{i}", daemon=True)
                       for i in range(size)]

    def _work(self):
        while True:
            item = self._in.get()
            if item == _END:
                break
            self._out.put(self._fn(item))
        self._out.put(_END)

    def _feed(self, items):
        for item in items:
            self._in.put(item)
        for _ in self._procs:
            self._in.put(_END)

    def __call__(self, items):
        for proc in self._procs:
            proc.start()
        threading.Thread(target=self._feed, args=(items,), name="feeder", daemon=True).start()
        open_ends = len(self._procs)
        while open_ends:
            got = self._out.get()
            if got == _END:
                open_ends -= 1
            else:
                yield got


class Window:
    """Moving rate over the last `span` seconds."""

    def __init__(self, span):
        self.span = span
        self.times = []

    def add(self, now):
        self.times.append(now)
        while self.times and self.times[0] < now - self.span:
            self.times.pop(0)

    def rate(self):
        return len(self.times) / self.span
