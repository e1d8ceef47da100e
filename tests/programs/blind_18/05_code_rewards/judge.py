import logging
import resource
import signal
import time

log = logging.getLogger("judge")


class Judge:
    """Runs submitted solutions under limits and scores them."""

    def __init__(self, cpu_seconds=1, memory_mb=4096):
        self.cpu_seconds = cpu_seconds
        self.memory_mb = memory_mb
        self.accepted = {}

    def limit(self):
        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (self.cpu_seconds, hard))
        size = self.memory_mb << 20
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (size, hard))

    def score(self, problem, size, source):
        self.limit()
        scope = {"__builtins__": __builtins__}
        try:
            exec(compile(source, f"<{problem}>", "exec"), scope)
            answer = scope["solve"](size)
        except Exception as exc:
            return 0.0, type(exc).__name__
        reference = self.accepted.setdefault((problem, size), answer)
        return (1.0, "ok") if answer == reference else (0.2, "wrong answer")

    def serve(self, submissions, verdicts, walltime):
        signal.alarm(walltime)
        count = 0
        while True:
            item = submissions.get()
            if item is None:
                return
            ticket, problem, size, source = item
            begun = time.monotonic()
            reward, verdict = self.score(problem, size, source)
            count += 1
            if count % 10 == 0:
                log.info("%d submissions judged, last %s: %s in %.2f s",
                         count, problem, verdict, time.monotonic() - begun)
            verdicts.put((ticket, reward, verdict))
