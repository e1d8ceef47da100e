"""Record cleaning with log records handed to the collector process through a queue."""
import logging
import logging.handlers
import multiprocessing as mp

log = logging.getLogger("cleaning")


class Collector:
    """The deployed service reads `queue` in its own process and writes the daily report."""

    def __init__(self):
        self.queue = mp.Queue()
        self.handler = logging.handlers.QueueHandler(self.queue)

    def attach(self):
        log.addHandler(self.handler)

    def detach(self):
        log.removeHandler(self.handler)


def clean(records):
    kept = []
    for number, record in enumerate(records):
        if record.get("value") is None:
            log.warning("record %d of %s has no value and was dropped: %r", number, record.get("site"), record)
            continue
        kept.append({**record, "value": float(record["value"])})
    return kept
