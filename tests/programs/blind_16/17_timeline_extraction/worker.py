import hashlib
import logging
import multiprocessing as mp
import random
import time

STATUS_IDLE, STATUS_RUNNING, STATUS_COMPLETED = "idle", "running", "completed"


class RegistryParser:
    """Walks the cells of a registry hive and makes one event per key."""

    def __init__(self, rng):
        self.rng = rng

    def iterate(self, hive):
        for n in range(hive["keys"]):
            yield {"path": "HKLM\\%s\\%08x" % (hive["name"], n), "time": self.rng.getrandbits(60),
                   "values": [bytes(self.rng.randbytes(hive["value_size"])) for _ in range(4)]}


class ExtractionWorker(mp.Process):
    """Takes tasks from the queue and reports events and its own status."""

    def __init__(self, name, task_queue, event_queue, status_queue):
        super().__init__(name=name, daemon=True)
        self.tasks, self.events, self.status = task_queue, event_queue, status_queue

    def report(self, status, hive=None, produced=0):
        self.status.put((self.name, self.pid, status, hive, produced))

    def run(self):
        log = logging.getLogger(self.name)
        parser = RegistryParser(random.Random(self.pid))
        self.report(STATUS_IDLE)
        while True:
            task = self.tasks.get()
            if task is None:
                break
            self.report(STATUS_RUNNING, task["name"])
            produced = self.process(parser, task)
            self.report(STATUS_IDLE, None, produced)
            log.debug("%s: %d events", task["name"], produced)
        self.report(STATUS_COMPLETED)

    def process(self, parser, hive):
        keys = []
        for n, key in enumerate(parser.iterate(hive)):
            keys.append(key)
            if n % 200 == 199:
                time.sleep(0.01)
        keys.sort(key=lambda k: k["time"])
        digest = hashlib.sha256(b"".join(k["values"][0] for k in keys)).hexdigest()
        self.events.put((hive["name"], len(keys), digest))
        return len(keys)
