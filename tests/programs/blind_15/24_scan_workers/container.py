"""The memory limit of the container, as the kernel would enforce it."""
import logging
import os
import signal
import time

log = logging.getLogger("kernel")


def children_of(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as f:
            return [int(x) for x in f.read().split()]
    except OSError:
        return []


def rss_mib(pid):
    try:
        with open(f"/proc/{pid}/statm") as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    except (OSError, IndexError):
        return 0.0


def enforce_memory_limit(limit_mib):
    parent = os.getppid()
    while os.getppid() == parent:
        usage = {pid: rss_mib(pid) for pid in children_of(parent)}
        if sum(usage.values()) > limit_mib:
            victim = max(usage, key=usage.get)
            log.warning("Memory cgroup out of memory: Killed process %d (python) anon-rss:%dkB", victim,
                        usage[victim] * 1024)
            os.kill(victim, signal.SIGKILL)
            time.sleep(1)
        time.sleep(0.1)
