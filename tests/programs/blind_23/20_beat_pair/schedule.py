"""Periodic entries and the beat that sends them; a second beat may stand by."""
import fcntl
import json
import logging
import os
import pathlib
import time
from dataclasses import dataclass

log = logging.getLogger("beat")


@dataclass
class Entry:
    name: str
    task: str
    every: float
    next_run: float = 0.0
    sent: int = 0


class DistributedLock:
    """Held by the active beat for as long as it lives."""

    def __init__(self, path, owner):
        self.path, self.owner = path, owner
        self.fd = None

    def acquire(self):
        self.fd = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self.fd, fcntl.LOCK_EX)
        os.ftruncate(self.fd, 0)
        os.pwrite(self.fd, self.owner.encode(), 0)

    def release(self):
        os.close(self.fd)


class Beat:
    def __init__(self, name, root, entries, outbox, max_interval=5.0):
        self.name = name
        self.state = pathlib.Path(root) / "schedule.json"
        self.lock = DistributedLock(os.path.join(root, "beat.lock"), name)
        self.entries = {e.name: e for e in entries}
        self.outbox = outbox
        self.max_interval = max_interval

    def load(self):
        if self.state.exists():
            for name, (next_run, sent) in json.loads(self.state.read_text()).items():
                self.entries[name].next_run, self.entries[name].sent = next_run, sent

    def save(self):
        data = {e.name: (e.next_run, e.sent) for e in self.entries.values()}
        temporary = self.state.with_suffix(".new")
        temporary.write_text(json.dumps(data))
        temporary.replace(self.state)

    def tick(self):
        now = time.time()
        for entry in self.entries.values():
            if entry.next_run <= now:
                entry.sent += 1
                entry.next_run = max(now, entry.next_run) + entry.every
                self.outbox.put({"task": entry.task, "id": f"{entry.name}-{entry.sent}", "sent": now})
                log.debug("%s: sending %s", self.name, entry.name)
        self.save()
        return min(self.max_interval, min(e.next_run for e in self.entries.values()) - now)

    def start(self, until):
        log.info("%s: starting, %d entries", self.name, len(self.entries))
        log.info("%s: Acquiring lock...", self.name)
        self.lock.acquire()
        log.info("%s: lock acquired, active", self.name)
        self.load()
        while time.time() < until:
            time.sleep(max(0.0, self.tick()))
        self.lock.release()
        log.info("%s: stopped", self.name)
