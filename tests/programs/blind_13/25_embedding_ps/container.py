"""Containers and the node's monitor, which enforces their memory limits."""
import logging
import os
import signal
import threading
import time
from dataclasses import dataclass
from multiprocessing.process import BaseProcess

log = logging.getLogger("nm")


@dataclass
class Container:
    job_type: str
    index: int
    process: BaseProcess
    memory_mb: int

    @property
    def name(self):
        return f"{self.job_type}:{self.index}"

    @property
    def completed(self):
        return self.process.exitcode is not None

    def rss_mb(self):
        try:
            with open(f"/proc/{self.process.pid}/statm") as f:
                return int(f.read().split()[1]) * 4096 // 2 ** 20
        except (FileNotFoundError, ProcessLookupError):
            return 0


class NodeMonitor(threading.Thread):
    def __init__(self, containers, interval=0.5):
        super().__init__(name="node-monitor", daemon=True)
        self.containers = containers
        self.interval = interval

    def run(self):
        while True:
            for c in self.containers:
                if c.completed:
                    continue
                used = c.rss_mb()
                if used > c.memory_mb:
                    log.info("container %s is running beyond physical memory limits: %d MB of %d MB used. Killing it.",
                             c.name, used, c.memory_mb)
                    os.kill(c.process.pid, signal.SIGKILL)
            time.sleep(self.interval)
