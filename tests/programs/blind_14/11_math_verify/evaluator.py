"""Scores predictions. Parsing may run away, so each one gets a process and a time limit."""
import logging
import multiprocessing as mp
import time
from multiprocessing.connection import wait

from verify import verify_in_child

log = logging.getLogger("evaluator")


class MATHVerifyEvaluator:
    def __init__(self, timeout, parallel):
        self.timeout = timeout
        self.parallel = parallel
        self.ctx = mp.get_context("fork")
        self.details = []

    def _start(self, number, gold, prediction):
        ours, theirs = self.ctx.Pipe(duplex=False)
        process = self.ctx.Process(target=verify_in_child, args=(theirs, gold, prediction),
                                   name=f"verify-{number}", daemon=True)
        process.start()
        theirs.close()
        return {"number": number, "gold": gold, "prediction": prediction, "process": process, "conn": ours,
                "deadline": time.monotonic() + self.timeout}

    def _finish(self, job):
        process, conn = job["process"], job["conn"]
        if conn.poll():
            try:
                status, correct = conn.recv()
            except EOFError:
                status, correct = "crashed", False
        else:
            status, correct = "timeout", False
            process.kill()
        process.join()
        conn.close()
        if status == "timeout":
            log.warning("sample %d: no verdict within %.0f s, killed pid %d (exitcode %d), counted as wrong: %s",
                        job["number"], self.timeout, process.pid, process.exitcode, job["prediction"][:60])
        elif status in ("error", "crashed"):
            log.warning("sample %d: %s, counted as wrong", job["number"], correct or status)
        self.details.append({"number": job["number"], "status": status, "correct": correct is True})

    def score(self, references, predictions):
        todo = list(enumerate(zip(references, predictions)))[::-1]
        running = []
        while todo or running:
            while todo and len(running) < self.parallel:
                number, (gold, prediction) = todo.pop()
                running.append(self._start(number, gold, prediction))
            nearest = min(j["deadline"] for j in running)
            ready = wait([j["conn"] for j in running], timeout=max(0.0, nearest - time.monotonic()))
            now = time.monotonic()
            for job in [j for j in running if j["conn"] in ready or j["deadline"] <= now]:
                running.remove(job)
                self._finish(job)
                if len(self.details) % 20 == 0:
                    log.info("%d of %d verified", len(self.details), len(references))
        correct = sum(d["correct"] for d in self.details)
        timeouts = sum(d["status"] == "timeout" for d in self.details)
        return {"accuracy": 100 * correct / len(references), "timeouts": timeouts}
