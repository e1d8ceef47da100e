"""Per-worker memory cap, the same policy as on the shared cluster nodes."""
import os
import signal
import threading
import time


def _watch(limit_bytes, interval):
    page = os.sysconf("SC_PAGE_SIZE")
    while True:
        with open("/proc/self/statm") as fh:
            rss = int(fh.read().split()[1]) * page
        if rss > limit_bytes:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(interval)


def apply_cap(limit_mb):
    threading.Thread(target=_watch, args=(limit_mb * 2 ** 20, 0.1), daemon=True, name="mem-cap").start()
