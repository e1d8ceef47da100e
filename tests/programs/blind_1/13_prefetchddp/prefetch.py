"""Background generator, after the well known prefetch package."""
import queue
import threading


class BackgroundGenerator(threading.Thread):
    def __init__(self, generator, max_prefetch=3):
        super().__init__(daemon=True, name="prefetch")
        self.queue = queue.Queue(max_prefetch)
        self.generator = generator
        self.start()

    def run(self):
        for item in self.generator:
            self.queue.put(item)
        self.queue.put(None)

    def __iter__(self):
        return self

    def __next__(self):
        item = self.queue.get()
        if item is None:
            raise StopIteration
        return item


class PrefetchLoader:
    def __init__(self, loader, max_prefetch=3):
        self.loader, self.max_prefetch = loader, max_prefetch

    def __iter__(self):
        return BackgroundGenerator(iter(self.loader), self.max_prefetch)
