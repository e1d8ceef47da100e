"""Reactor: polls the ring, keeps an order book of best prices and hands signals to the journal."""
import logging
import time

import walltime
from ring import Ring

log = logging.getLogger("reactor")


class Book:
    def __init__(self, alpha: float):
        self.alpha = alpha
        self.fast: dict[int, float] = {}
        self.slow: dict[int, float] = {}

    def on_quote(self, symbol: int, bid: float, ask: float) -> str | None:
        mid = 0.5 * (bid + ask)
        fast = self.fast.get(symbol, mid)
        slow = self.slow.get(symbol, mid)
        was_above = fast > slow
        self.fast[symbol] = fast + self.alpha * (mid - fast)
        self.slow[symbol] = slow + 0.1 * self.alpha * (mid - slow)
        is_above = self.fast[symbol] > self.slow[symbol]
        if is_above != was_above:
            return "buy" if is_above else "sell"
        return None


class Reactor:
    def __init__(self, ring: Ring, journal, report_every: float):
        self.ring, self.journal, self.report_every = ring, journal, report_every
        self.book = Book(alpha=0.2)
        self.handled = 0
        self.expected = 0
        self.missing = 0
        self.latencies: list[float] = []

    def handle(self, record) -> None:
        number, stamp, symbol, _, bid, ask = record
        self.missing += number - self.expected
        self.expected = number + 1
        self.latencies.append(time.monotonic() - stamp)
        self.handled += 1
        signal = self.book.on_quote(symbol, bid, ask)
        if signal:
            self.journal.put((number, symbol, signal))

    def report(self) -> None:
        lat = sorted(self.latencies)
        if lat:
            log.info("%d quotes, %d missing, latency p50 %.0f us p99 %.0f us", self.handled, self.missing,
                     1e6 * lat[len(lat) // 2], 1e6 * lat[int(0.99 * (len(lat) - 1))])
        self.latencies.clear()

    def run(self) -> None:
        due = time.monotonic() + self.report_every
        while True:
            record = self.ring.poll()
            if record is not None:
                self.handle(record)
            elif time.monotonic() > due:
                self.report()
                due += self.report_every


def reactor_main(name: str, slots: int, journal, report_every: float, limit: float) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    walltime.arm(limit)
    Reactor(Ring(slots, name), journal, report_every).run()
