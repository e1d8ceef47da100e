"""Caches part of the cases and exchanges a share of them after every epoch."""
import logging
import multiprocessing as mp
import time

log = logging.getLogger("cache")


def replace_worker(transform, wanted, prepared):
    while True:
        cases = wanted.get()
        if cases is None:
            return
        for case in cases:
            prepared.put(transform(case))


class SmartCache:
    def __init__(self, cases, transform, cache_num, replace_num, workers):
        self.cases, self.transform = cases, transform
        self.cache_num, self.replace_num = cache_num, replace_num
        self.cache = []
        self.position = 0
        self.wanted = mp.Queue()
        self.prepared = mp.Queue()
        self.workers = [mp.Process(target=replace_worker, args=(transform, self.wanted, self.prepared),
                                   name="replace-%d" % i, daemon=True) for i in range(workers)]
        for w in self.workers:
            w.start()

    def draw(self, count):
        picked = [self.cases[(self.position + i) % len(self.cases)] for i in range(count)]
        self.position = (self.position + count) % len(self.cases)
        return picked

    def request(self, count):
        picked = self.draw(count)
        share = len(self.workers)
        for i in range(share):
            self.wanted.put(picked[i::share])

    def fill(self):
        begin = time.monotonic()
        self.request(self.cache_num)
        while len(self.cache) < self.cache_num:
            self.cache.append(self.prepared.get())
            if len(self.cache) % 10 == 0:
                log.info("cached %d of %d volumes", len(self.cache), self.cache_num)
        log.info("cache filled in %.1f s", time.monotonic() - begin)

    def start_replacement(self):
        self.request(self.replace_num)

    def update(self):
        begin = time.monotonic()
        fresh = [self.prepared.get() for _ in range(self.replace_num)]
        self.cache = self.cache[self.replace_num:] + fresh
        return time.monotonic() - begin
