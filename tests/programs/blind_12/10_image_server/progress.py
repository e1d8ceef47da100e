"""Progress worker: follows all jobs and tells the web clients about it."""
import logging
import time
from queue import Empty

log = logging.getLogger("onnx.progress")


class JobStatus:
    def __init__(self, steps):
        self.steps = steps
        self.progress = 0
        self.eta = None
        self.started = time.time()


class ProgressTracker:
    def __init__(self, events, limits):
        self.events = events
        self.limits = limits
        self.running = {}
        self.history = []

    def update(self, event):
        status = self.running.get(event.job)
        if status is None:
            status = self.running[event.job] = JobStatus(self.limits.get(event.job, 25))
        if event.finished or event.failed:
            elapsed = time.time() - status.started
            self.history.append((event.job, elapsed / status.progress))
            del self.running[event.job]
            log.info("job %s finished, %d running", event.job, len(self.running))
            return
        status.progress = event.progress
        status.eta = (time.time() - status.started) / event.progress * (status.steps - event.progress)


def progress_main(events, limits):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    tracker = ProgressTracker(events, limits)
    while True:
        try:
            tracker.update(events.get(timeout=1.0))
        except Empty:
            continue
