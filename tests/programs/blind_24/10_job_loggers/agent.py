"""Executes jobs of one site."""
import logging
import time

import numpy as np

from joblog import JobLog


class Job:
    def __init__(self, spec):
        self.id = spec["id"]
        self.rng = np.random.default_rng(spec["seed"])
        self.events = spec["events"]

    def run(self, log):
        log.info("job %s: %d events", self.id, self.events)
        kept = 0
        for block in range(self.events // 250):
            hits = self.rng.normal(size=(250, 4)).astype(np.float32)
            mass = np.sqrt((hits ** 2).sum(1))
            sel = hits[mass > 2.2]
            kept += len(sel)
            log.debug("block %d raw %s", block, hits.tobytes().hex())
            log.debug("block %d kept %d max %.3f", block, len(sel), float(mass.max()))
        log.info("job %s: kept %d", self.id, kept)
        return kept


class Agent:
    def __init__(self, site, requests, reports, pace):
        self.site, self.requests, self.reports, self.pace = site, requests, reports, pace
        self.done = 0

    def execute(self, spec):
        log = JobLog(self.site, spec["id"])
        try:
            kept = Job(spec).run(log)
            return {"id": spec["id"], "status": "Done", "kept": kept, "tail": log.handler.tail(300)}
        except Exception as err:
            log.exception("job failed")
            return {"id": spec["id"], "status": "Failed", "reason": repr(err), "tail": log.handler.tail(300)}
        finally:
            log.close()

    def loop(self):
        own = logging.getLogger(self.site)
        while True:
            begun = time.monotonic()
            spec = self.requests.get()
            if spec is None:
                return
            self.reports.put(self.execute(spec))
            self.done += 1
            if self.done % 200 == 0:
                own.info("%d jobs executed", self.done)
            time.sleep(max(0.0, self.pace - (time.monotonic() - begun)))


def serve(site, requests, reports, pace):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [{site}] %(message)s", force=True)
    Agent(site, requests, reports, pace).loop()
