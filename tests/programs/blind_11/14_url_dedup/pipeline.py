import hashlib
import logging
import multiprocessing as mp
import random
import time
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

log = logging.getLogger("dedup.pipeline")
END = "__end__"


def synth_urls(chunk, size):
    rng = random.Random(chunk)
    hosts = [f"host{i}.example.org" for i in range(40)]
    return [f"https://{rng.choice(hosts)}/p/{rng.randrange(3000)}?b={rng.randrange(5)}&a={rng.randrange(5)}#s{rng.randrange(9)}"
            for _ in range(size)]


def normalize(url):
    parts = urlsplit(url)
    query = urlencode(sorted(parse_qsl(parts.query)))
    return urlunsplit((parts.scheme, parts.netloc, parts.path, query, ""))


class Reader(mp.Process):
    def __init__(self, chunks, chunk_size, raw, workers):
        super().__init__(name="reader")
        self.chunks, self.chunk_size, self.raw, self.workers = chunks, chunk_size, raw, workers

    def run(self):
        for chunk in range(self.chunks):
            self.raw.put((chunk, synth_urls(chunk, self.chunk_size)))
        for _ in range(self.workers):
            self.raw.put(END)


class Normalizer(mp.Process):
    def __init__(self, index, raw, cleaned):
        super().__init__(name=f"normalizer-{index}")
        self.raw, self.cleaned = raw, cleaned

    def run(self):
        while True:
            item = self.raw.get()
            if item == END:
                self.cleaned.put(END)
                return
            chunk, urls = item
            keyed = [(hashlib.md5(u.encode()).digest(), u) for u in map(normalize, urls)]
            self.cleaned.put((chunk, keyed))


class IndexClient:
    """The remote index takes one bulk request at a time and answers 429 when it is asked more often."""

    def __init__(self, seconds_per_bulk):
        self.seconds_per_bulk = seconds_per_bulk
        self.next_slot = time.monotonic()
        self.sent = 0

    def bulk(self, urls):
        delay = self.next_slot - time.monotonic()
        if delay > 0:
            time.sleep(delay)
        self.next_slot = time.monotonic() + self.seconds_per_bulk
        self.sent += len(urls)
