import collections
import multiprocessing as mp
import threading
import time
from dataclasses import dataclass

from sandbox import execute

ctx = mp.get_context("fork")


@dataclass
class Limits:
    timeout: float
    memory: int


@dataclass
class Observation:
    status: str
    reward: float


class CodeEnvironment:
    """Runs each program in its own child process with a time and a memory limit."""

    def __init__(self, limits, startup_grace=0.5):
        self.limits = limits
        self.startup_grace = startup_grace
        self.counts = collections.Counter()
        self.lock = threading.Lock()

    def step(self, code, answer):
        status, output = self._run(code)
        with self.lock:
            self.counts[status] += 1
        return Observation(status, 1.0 if output == answer else 0.0)

    def _run(self, code):
        recv, send = ctx.Pipe(duplex=False)
        proc = ctx.Process(target=execute, args=(send, code, self.limits.memory), name="sandbox")
        with self.lock:
            proc.start()
        send.close()
        deadline = time.monotonic() + self.limits.timeout + self.startup_grace
        try:
            if recv.poll(max(0.0, deadline - time.monotonic())):
                return recv.recv()
            proc.kill()
            return "timeout", None
        except EOFError:
            return "died", None
        finally:
            proc.join()
            recv.close()
