import contextlib
import os
import signal
import time


class StageInTimeout(Exception):
    pass


def _on_alarm(signum, frame):
    raise StageInTimeout()


@contextlib.contextmanager
def alarm_handler():
    old = signal.signal(signal.SIGALRM, _on_alarm)
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, old)


class Stager:
    """Copies a remote file to the local scratch, within a time limit."""

    def __init__(self, scratch, limit):
        self.scratch = scratch
        self.limit = limit

    def local_path(self, name):
        return os.path.join(self.scratch, name)

    def fetch(self, name):
        path = self.local_path(name)
        with alarm_handler():
            signal.alarm(self.limit)
            if os.path.exists(path):
                return path
            self._download(name, path)
            signal.alarm(0)
        return path

    def _download(self, name, path):
        time.sleep(0.4)
        with open(path + ".part", "wb") as f:
            f.write(os.urandom(1 << 16))
        os.replace(path + ".part", path)
