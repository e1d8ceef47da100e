import os

from job import Job


class Recipe:
    """An ordered list of jobs for one observation."""

    def __init__(self, name, workdir, antennas):
        self.name = name
        self.antennas = antennas
        self.logdir = os.path.join(workdir, name)
        os.makedirs(self.logdir, exist_ok=True)
        self.jobs = []

    def add(self, task):
        self.jobs.append(Job(self.name, task, self.logdir, self.antennas))

    def run(self):
        chi2 = 0.0
        for job in self.jobs:
            chi2 = job.run()
        return chi2
