"""Iterate ahead of the consumer."""
import queue
import threading


class Prefetch:
    _END = object()

    def __init__(self, iterator, size=8):
        self.iterator = iterator
        self.queue = queue.Queue(maxsize=size)
        self.thread = threading.Thread(target=self._fill, name="prefetch", daemon=True)
        self.thread.start()

    def _fill(self):
        for item in self.iterator:
            self.queue.put(item)
        self.queue.put(self._END)

    def __iter__(self):
        while True:
            item = self.queue.get()
            if item is self._END:
                return
            yield item
