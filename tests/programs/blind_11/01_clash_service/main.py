import argparse
import json
import logging
import pathlib
import tempfile
import time
from dataclasses import dataclass

from clash import detect_clashes
from isolation import ToolError, run_isolated

log = logging.getLogger("ifcservice")


@dataclass
class Job:
    job_id: str
    model_a: str
    model_b: str
    elements: int
    extent: float
    seed: int


class ClashService:
    def __init__(self, out_dir, pause):
        self.out_dir = out_dir
        self.pause = pause
        self.pending = []
        self.done = 0

    def submit(self, job):
        self.pending.append(job)

    def run(self):
        while self.pending:
            job = self.pending.pop(0)
            log.info("job %s started (%d elements), %d queued behind it", job.job_id, job.elements, len(self.pending))
            started = time.time()
            try:
                report = run_isolated(
                    detect_clashes,
                    dict(model_a=job.model_a, model_b=job.model_b, elements=job.elements,
                         extent=job.extent, seed=job.seed),
                    name=f"clash-{job.job_id}",
                )
            except ToolError as exc:
                log.error("job %s failed: %s", job.job_id, exc)
                continue
            path = self.out_dir / f"{job.job_id}.json"
            path.write_text(json.dumps(report))
            self.done += 1
            log.info("job %s done in %.1fs, %d clashes, report %d bytes", job.job_id, time.time() - started,
                     report["count"], path.stat().st_size)
            time.sleep(self.pause)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", default=None)
    parser.add_argument("--jobs", type=int, default=40)
    parser.add_argument("--pause", type=float, default=0.4)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(name)s %(message)s")

    out_dir = pathlib.Path(args.out or tempfile.mkdtemp(prefix="clash_reports_"))
    service = ClashService(out_dir, args.pause)
    for n in range(args.jobs):
        big = n % 9 == 6
        service.submit(Job(f"{n:03d}", "ARC" if n % 2 else "MEP", "STR",
                           elements=2600 if big else 350, extent=28.0 if big else 34.0, seed=n))
    service.run()
    log.info("all jobs processed, %d reports in %s", service.done, out_dir)


if __name__ == "__main__":
    main()
