"""Executes candidate solutions under resource limits and scores them against their tests."""
import contextlib
import io
import logging
import resource
import signal

log = logging.getLogger("executor")


class ExecutionTimeout(Exception):
    pass


@contextlib.contextmanager
def wall_clock(seconds):
    def on_alarm(signum, frame):
        raise ExecutionTimeout(f"exceeded {seconds} s")

    previous = signal.signal(signal.SIGALRM, on_alarm)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def apply_limits(cpu_seconds, memory_mb):
    usage = resource.getrusage(resource.RUSAGE_SELF)
    used = int(usage.ru_utime + usage.ru_stime) + 1
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (used + cpu_seconds, hard))
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (memory_mb << 20, hard))


def run_candidate(source, tests, cpu_seconds=2, wall_seconds=30, memory_mb=1024):
    apply_limits(cpu_seconds, memory_mb)
    scope = {}
    passed = 0
    try:
        with wall_clock(wall_seconds), contextlib.redirect_stdout(io.StringIO()):
            exec(source, scope)
            for args, expected in tests:
                passed += scope["solve"](*args) == expected
    except Exception as exc:
        return {"passed": passed, "total": len(tests), "error": f"{type(exc).__name__}: {exc}"}
    return {"passed": passed, "total": len(tests), "error": None}
