"""Remove personal data from an archive of support tickets with a pool of processes."""
import argparse
import collections
import json
import logging
import multiprocessing as mp
import tempfile
import time
from pathlib import Path

import walltime
from patterns import scrub
from tickets import Archive, Ticket

log = logging.getLogger("scrub")


def init_worker(limit: float) -> None:
    walltime.arm(limit)


def scrub_ticket(ticket: Ticket):
    started = time.perf_counter()
    text, counts = scrub(ticket.body)
    return ticket.number, ticket.source, text, counts, time.perf_counter() - started


class Progress:
    def __init__(self, every: float):
        self.every = every
        self.done = 0
        self.characters = 0
        self.found = collections.Counter()
        self._last = time.monotonic()
        self._last_done = 0

    def add(self, text: str, counts: dict) -> None:
        self.done += 1
        self.characters += len(text)
        self.found.update(counts)

    def report(self) -> None:
        now = time.monotonic()
        if now - self._last >= self.every:
            rate = (self.done - self._last_done) / (now - self._last)
            log.info("%d tickets, %.1f a second, %d matches", self.done, rate, sum(self.found.values()))
            self._last, self._last_done = now, self.done


class Sink:
    """Numbered parts of at most so many tickets."""

    def __init__(self, folder: Path, per_part: int):
        self.folder, self.per_part = folder, per_part
        self.part = 0
        self.rows: list[str] = []

    def write(self, number: int, text: str) -> None:
        self.rows.append(json.dumps({"number": number, "body": text}))
        if len(self.rows) >= self.per_part:
            self.flush()

    def flush(self) -> None:
        if self.rows:
            (self.folder / f"part-{self.part:05d}.jsonl").write_text("\n".join(self.rows) + "\n")
            self.part += 1
            self.rows = []


def throttled(tickets, slots):
    for ticket in tickets:
        slots.acquire()
        yield ticket


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--legacy", type=int, default=1500)
    p.add_argument("--total", type=int, default=6000)
    p.add_argument("--image-bytes", type=int, default=60_000)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--per-part", type=int, default=200)
    p.add_argument("--report-every", type=float, default=5.0)
    p.add_argument("--limit", type=float, default=120.0)
    p.add_argument("--seed", type=int, default=17)
    return p.parse_args()


def main() -> None:
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    walltime.arm(args.limit)
    archive = Archive(args.legacy, args.total, args.image_bytes, args.seed)
    progress = Progress(args.report_every)
    ctx = mp.get_context("fork")
    slots = ctx.Semaphore(args.workers * 8)
    with tempfile.TemporaryDirectory(prefix="scrub_") as tmp:
        sink = Sink(Path(tmp), args.per_part)
        with ctx.Pool(args.workers, init_worker, (args.limit,)) as pool:
            log.info("%d tickets for %d workers", args.total, args.workers)
            for number, source, text, counts, seconds in pool.imap_unordered(scrub_ticket, throttled(archive, slots)):
                slots.release()
                sink.write(number, text)
                progress.add(text, counts)
                progress.report()
        sink.flush()
        log.info("done: %d tickets, %s", progress.done, dict(progress.found))


if __name__ == "__main__":
    main()
