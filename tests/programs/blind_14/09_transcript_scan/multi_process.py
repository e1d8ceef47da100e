"""The multi process strategy: scan processes send their results upstream, the main process records them."""
import logging
import multiprocessing as mp
import queue
import threading
import time

from messages import ResultItem, WorkerComplete
from scanner import scan_process

log = logging.getLogger("scan")


class UpstreamCollector(threading.Thread):
    """Takes the messages of the scan processes off the pipe and sorts them by kind."""

    def __init__(self, upstream, processes):
        super().__init__(name="upstream-collector", daemon=True)
        self.upstream = upstream
        self.processes = processes
        self.results = queue.Queue()
        self.finished = threading.Event()
        self.scanned = 0

    def run(self):
        running = self.processes
        while running:
            message = self.upstream.get()
            if isinstance(message, WorkerComplete):
                running -= 1
                self.scanned += message.scanned
                log.info("scan process %d has scanned its %d transcripts", message.worker, message.scanned)
            elif isinstance(message, ResultItem):
                self.results.put(message)
        self.finished.set()


def multi_process_scan(recorder, processes, transcripts, seed, report_every):
    upstream = mp.Queue()
    share = transcripts // processes
    workers = [mp.Process(target=scan_process, name=f"scan-{i}", args=(i, share, upstream, seed), daemon=True)
               for i in range(processes)]
    for w in workers:
        w.start()
    collector = UpstreamCollector(upstream, processes)
    collector.start()

    reported = time.monotonic()
    while not (collector.finished.is_set() and collector.results.empty()):
        try:
            item = collector.results.get(timeout=0.5)
        except queue.Empty:
            continue
        recorder.record(item)
        if time.monotonic() - reported > report_every:
            reported = time.monotonic()
            log.info("%d results recorded: %s", recorder.rows, recorder.summary())
    for w in workers:
        w.join()
    return recorder.rows
