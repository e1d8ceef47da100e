"""Running commands, with exit code checks and time limits."""
import logging
import subprocess
import threading
import time

log = logging.getLogger("shell")


class ProcessTimedOut(Exception):
    def __init__(self, msg, argv):
        super().__init__(msg, argv)
        self.argv = argv


class ProcessExecutionError(Exception):
    def __init__(self, argv, retcode, stdout, stderr):
        super().__init__(f"{argv} gave {retcode}: {stderr.strip()[-200:]}")


class _TimeoutThread(threading.Thread):
    """Kills the processes that are past their deadline."""

    def __init__(self):
        super().__init__(name="timeouts", daemon=True)
        self._watched = []
        self._lock = threading.Lock()

    def register(self, proc, deadline):
        with self._lock:
            self._watched.append((deadline, proc))

    def run(self):
        while True:
            time.sleep(0.2)
            now = time.monotonic()
            with self._lock:
                late = [p for d, p in self._watched if d <= now]
                self._watched = [(d, p) for d, p in self._watched if d > now and p.poll() is None]
            for proc in late:
                if proc.poll() is None:
                    log.warning("%s is over its time limit, killing it", proc.args)
                    proc._timed_out = True
                    proc.kill()


_timeouts = _TimeoutThread()


class Command:
    def __init__(self, *argv):
        self.argv = list(argv)

    def __getitem__(self, args):
        args = args if isinstance(args, tuple) else (args,)
        return Command(*self.argv, *map(str, args))

    def popen(self, **kw):
        return subprocess.Popen(self.argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, **kw)

    def __call__(self, timeout=None, **kw):
        return run_proc(self.popen(**kw), timeout)


def run_proc(proc, timeout=None):
    if not _timeouts.is_alive():
        _timeouts.start()
    proc._timed_out = False
    if timeout is not None:
        _timeouts.register(proc, time.monotonic() + timeout)
    stdout, stderr = proc.communicate()
    if proc._timed_out:
        raise ProcessTimedOut(f"process did not end within {timeout} s", proc.args)
    if proc.returncode:
        raise ProcessExecutionError(proc.args, proc.returncode, stdout, stderr)
    return stdout
