"""WikiModel: streams all items of one kind, scraped by a group of processes."""
import logging
import multiprocessing as mp
import queue

from wiki import WikiMirror, parse_page

log = logging.getLogger("wiki.model")


class ScrapeWorker(mp.Process):
    def __init__(self, number, inbox, outbox, unfinished, lifetime):
        super().__init__(name=f"scraper-{number}", daemon=True)
        self.inbox, self.outbox, self.unfinished = inbox, outbox, unfinished
        self.lifetime = lifetime
        self.mirror = None

    def run(self):
        self.lifetime.start()
        self.mirror = WikiMirror()
        while True:
            path = self.inbox.get()
            if path is None:
                break
            try:
                self.task(path)
            except Exception as exc:
                log.warning("%s could not be read: %s", path, exc)

    def task(self, path):
        html = self.mirror.fetch(path)
        item = parse_page(path, html)
        self.outbox.put(item)
        with self.unfinished.get_lock():
            self.unfinished.value -= 1


class WikiModel:
    kind = None

    def __init__(self, workers, lifetime):
        self.inbox = mp.Queue()
        self.outbox = mp.Queue()
        self.unfinished = mp.Value("i", 0)
        self.workers = [ScrapeWorker(i, self.inbox, self.outbox, self.unfinished, lifetime) for i in range(workers)]
        for worker in self.workers:
            worker.start()

    def full_data(self, kind, count):
        """Yield every item of `kind` as soon as it has been parsed."""
        paths = WikiMirror().index(kind, count)
        with self.unfinished.get_lock():
            self.unfinished.value += len(paths)
        for path in paths:
            self.inbox.put(path)
        while self.unfinished.value > 0 or not self.outbox.empty():
            try:
                yield self.outbox.get(timeout=0.5)
            except queue.Empty:
                continue

    def close(self):
        for _ in self.workers:
            self.inbox.put(None)
        for worker in self.workers:
            worker.join()
