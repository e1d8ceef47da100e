"""Runs untrusted programs, each in a process of its own, with a time limit."""
import contextlib
import io
import multiprocessing as mp
import time
from dataclasses import dataclass

ctx = mp.get_context("fork")


@dataclass
class Result:
    status: str
    reward: float


def run_tests(program, tests, conn):
    scope = {}
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            exec(program, scope)
            passed = sum(scope["solve"](*arguments) == expected for arguments, expected in tests)
    except BaseException as e:
        conn.send((f"raised {type(e).__name__}", 0.0))
    else:
        conn.send(("passed" if passed == len(tests) else "wrong", passed / len(tests)))


class CodeReward:
    def __init__(self, timeout):
        self.timeout = timeout

    def __call__(self, programs, tests):
        running = []
        for program in programs:
            ours, theirs = ctx.Pipe(duplex=False)
            process = ctx.Process(target=run_tests, args=(program, tests, theirs), daemon=True)
            process.start()
            theirs.close()
            running.append((process, ours))
        deadline = time.monotonic() + self.timeout
        return [self.collect(process, conn, deadline) for process, conn in running]

    def collect(self, process, conn, deadline):
        try:
            if conn.poll(max(0.0, deadline - time.monotonic())):
                result = Result(*conn.recv())
            else:
                result = Result("timeout", -0.5)
        except EOFError:
            result = Result("died", -0.5)
        if result.status == "timeout":
            process.kill()
        process.join()
        conn.close()
        return result
