"""Job board: every job has its own shared log and status in the manager."""
import random
import time


class JobBoard:
    def __init__(self, manager):
        self.manager = manager
        self.jobs = manager.dict()
        self.todo = manager.Queue()

    def post(self, job_id):
        curve = self.manager.list()
        self.jobs[job_id] = curve
        self.todo.put(job_id)

    def collect(self, job_id):
        curve = self.jobs[job_id]
        vals = curve[:]
        del self.jobs[job_id]
        return vals


def worker(idx, jobs, todo, done):
    rng = random.Random(idx)
    while True:
        job_id = todo.get()
        curve = jobs[job_id]
        for _ in range(4):
            time.sleep(0.12)
            curve.extend([rng.random() for _ in range(6000)])
        done.put(job_id)
