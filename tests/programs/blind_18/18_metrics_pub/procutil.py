"""Helpers for child processes."""
import logging
import multiprocessing as mp
import os
import signal
import sys

_RESET = [getattr(signal, n) for n in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2",
                                       "SIGPIPE", "SIGALRM", "SIGCHLD") if hasattr(signal, n)]


def reset_signal_handlers():
    """Children must not run the handlers of the parent."""
    for s in _RESET:
        signal.signal(s, signal.SIG_DFL)


def setup_logging(name):
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, force=True,
                        format="%(asctime)s " + name + " %(message)s")
    return logging.getLogger(name)


class Child(mp.Process):
    def run(self):
        reset_signal_handlers()
        self.log = setup_logging(self.name)
        self.log.info("started, pid %d", os.getpid())
        self.main()

    def main(self):
        raise NotImplementedError
