"""Minimal span tracing. Finished spans are buffered and shipped by a background thread."""
import threading
import time
from dataclasses import dataclass


@dataclass
class Header:
    service: str
    seq: int


@dataclass
class Envelope:
    header: Header
    record: dict


class Span:
    def __init__(self, tracer, name, parent=None):
        self.tracer = tracer
        self.name = name
        self.parent = parent
        self.children = []
        self.data = {}
        self.started = time.time()
        self.ended = None

    def child(self, name):
        span = Span(self.tracer, name, parent=self)
        self.children.append(span)
        return span

    def set(self, key, value):
        self.data[key] = value

    def finish(self):
        if self.ended is None:
            self.ended = time.time()
            self.tracer.capture(self)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.finish()

    def __del__(self):
        # spans that nobody finished are reported when they go away
        self.finish()


class SpanBuffer:
    def __init__(self, service, limit=20000):
        self.service = service
        self._lock = threading.Lock()
        self._items = []
        self._seq = 0
        self.limit = limit
        self.dropped = 0

    def add(self, record):
        with self._lock:
            if len(self._items) >= self.limit:
                self.dropped += 1
                return
            self._seq += 1
            self._items.append(Envelope(Header(self.service, self._seq), record))

    def take(self):
        with self._lock:
            items, self._items = self._items, []
        return items


class Tracer:
    def __init__(self, service, sink, interval=0.25):
        self.sink = sink
        self.interval = interval
        self.buffer = SpanBuffer(service)
        self._thread = threading.Thread(target=self._ship, name="span-shipper", daemon=True)
        self._thread.start()

    def span(self, name):
        return Span(self, name)

    def capture(self, span):
        self.buffer.add({
            "name": span.name,
            "start": span.started,
            "duration": span.ended - span.started,
            "data": dict(span.data),
        })

    def flush(self):
        items = self.buffer.take()
        if items:
            self.sink.put(items)

    def _ship(self):
        while True:
            time.sleep(self.interval)
            self.flush()
