"""Keeps the machine free of tool processes that agents left running."""
import logging
import os
import time

import psutil

log = logging.getLogger("guard")


class ProcessGuard:
    def __init__(self, root_pid, max_runtime, interval=1.0, min_rss_mb=8):
        self.root_pid, self.max_runtime, self.interval = root_pid, max_runtime, interval
        self.min_rss = min_rss_mb * 1024 * 1024
        self.reaped = 0

    def candidates(self):
        for proc in psutil.Process(self.root_pid).children(recursive=True):
            if proc.pid == os.getpid():
                continue
            try:
                with proc.oneshot():
                    if proc.terminal() is None or "python" in " ".join(proc.cmdline()):
                        yield proc, time.time() - proc.create_time(), proc.memory_info().rss
            except (psutil.NoSuchProcess, psutil.ZombieProcess):
                continue

    def scan(self):
        for proc, runtime, rss in self.candidates():
            if runtime > self.max_runtime and rss > self.min_rss:
                log.debug("reaping %d, runtime %.0f s", proc.pid, runtime)
                proc.kill()
                self.reaped += 1

    def run(self):
        while True:
            try:
                self.scan()
            except psutil.NoSuchProcess:
                return
            time.sleep(self.interval)


def run_guard(root_pid, max_runtime):
    ProcessGuard(root_pid, max_runtime).run()
