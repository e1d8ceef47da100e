"""Runs a function in a process of its own that outlives the caller."""
import logging
import os
import sys

log = logging.getLogger("detach")


def run_detached(function, *args):
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
        return
    os.setsid()
    if os.fork():
        sys.exit(0)
    try:
        function(*args)
    except Exception:
        log.exception("detached %s failed", function.__name__)
    finally:
        os._exit(0)
