import queue
import threading

_END = object()


class Prefetch:
    """Runs an iterator in a background thread and keeps up to `depth` items ready."""

    def __init__(self, iterable, depth=4):
        self.queue = queue.Queue(depth)
        self.thread = threading.Thread(target=self._fill, args=(iterable,), daemon=True, name="prefetch")
        self.thread.start()

    def _fill(self, iterable):
        for item in iterable:
            self.queue.put(item)
        self.queue.put(_END)

    def __iter__(self):
        while True:
            item = self.queue.get()
            if item is _END:
                return
            yield item
