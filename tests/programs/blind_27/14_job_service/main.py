"""Small training service: jobs are trained in a background process, predictions are served meanwhile."""
import argparse
import logging
import tempfile
import time

import torch
import torch.multiprocessing as mp

from data import make_requests
from training import TrainingWorker

log = logging.getLogger("service")


class Service:
    def __init__(self, root):
        self.jobs = mp.Queue()
        manager = mp.Manager()
        self.status = manager.dict()
        self.trainer = TrainingWorker(self.jobs, self.status, root)
        self.trainer.start()
        self.next_id = 0

    def submit(self, **config):
        job_id = f"job-{self.next_id}"
        self.next_id += 1
        self.status[job_id] = {"state": "QUEUED", "progress": 0.0}
        self.jobs.put((job_id, config))
        return job_id

    def serve(self, seconds):
        """Answers prediction requests with the built-in baseline model for a while."""
        baseline = torch.nn.Linear(32, 4)
        answered = 0
        end = time.time() + seconds
        while time.time() < end:
            with torch.no_grad():
                baseline(make_requests(16)).argmax(dim=1)
            answered += 16
            time.sleep(0.05)
        return answered


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--jobs", type=int, default=3)
    p.add_argument("--epochs", type=int, default=5)
    p.add_argument("--steps-per-epoch", type=int, default=140)
    p.add_argument("--num-workers", type=int, default=2)
    p.add_argument("--batch-size", type=int, default=32)
    p.add_argument("--report-every", type=float, default=5.0)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(name)s %(message)s")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="jobs-") as root:
        service = Service(root)
        for seed in range(args.jobs):
            service.submit(seed=seed, epochs=args.epochs, steps=args.steps_per_epoch,
                           num_workers=args.num_workers, batch_size=args.batch_size)
        while any(s["state"] not in ("COMPLETED", "FAILED") for s in service.status.values()):
            answered = service.serve(args.report_every)
            states = ", ".join(f"{k} {v['state']} {v['progress']:.0%}" for k, v in sorted(service.status.items()))
            log.info("%d predictions, %s", answered, states)


if __name__ == "__main__":
    main()
