"""Consumer workers: take a submission, have it graded, report, acknowledge."""
import hashlib
import logging
import multiprocessing as mp
import random
import signal
import sys
import time

log = logging.getLogger("consumer")


class ConnectionExpired(Exception):
    """The grader closes a session after so many submissions; a new worker opens a new one."""


class GraderSession:
    def __init__(self, max_submissions):
        self.max_submissions = max_submissions
        self.used = 0

    def post(self, submission):
        if self.used >= self.max_submissions:
            raise ConnectionExpired(f"session is over after {self.used} submissions")
        self.used += 1
        digest = b""
        for _ in range(300):
            digest = hashlib.sha256(digest + submission["code"].encode()).digest()
        time.sleep(0.12)
        return {"score": digest[0] % 11, "max": 10}


class Worker(mp.Process):
    def __init__(self, queue_name, broker, stop_event, session_length):
        super().__init__(name=f"Worker-{queue_name}")
        self.queue_name = queue_name
        self.broker = broker
        self.stop_event = stop_event
        self.session_length = session_length

    def run(self):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        rng = random.Random()
        session = GraderSession(int(self.session_length * rng.uniform(0.7, 1.3)))
        graded = 0
        try:
            while not self.stop_event.is_set():
                delivery = self.broker.basic_get(self.pid)
                if delivery is None:
                    time.sleep(0.2)
                    continue
                tag, submission = delivery
                session.post(submission)
                self.broker.ack(tag)
                graded += 1
        except ConnectionExpired as e:
            log.error("%s pid=%d failed: %s", self.name, self.pid, e)
            sys.exit(1)
        log.info("%s pid=%d finished after %d submissions", self.name, self.pid, graded)


def monitor(workers, broker, poll=1.0, deadline=None, stop_event=None):
    """Starts a new worker for each one that has failed, until all have finished."""
    restarts = 0
    while workers:
        if deadline is not None and time.time() > deadline and not stop_event.is_set():
            log.info("stopping the workers")
            stop_event.set()
        finished, failed = [], []
        for worker in workers:
            if worker.exitcode is None:
                continue
            (failed if worker.exitcode == 1 else finished).append(worker)
        for worker in failed:
            worker.join()
            requeued = broker.connection_lost(worker.pid)
            workers.remove(worker)
            replacement = Worker(worker.queue_name, worker.broker, worker.stop_event, worker.session_length)
            replacement.start()
            workers.append(replacement)
            restarts += 1
            log.info("restarted %s: %d -> %d, %d submissions requeued", worker.name, worker.pid, replacement.pid,
                     requeued)
        for worker in finished:
            worker.join()
            workers.remove(worker)
        time.sleep(poll)
    return restarts
