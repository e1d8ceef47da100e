"""Processes of the bot: repository workers that apply patches, and the analyzer that reports."""
import hashlib
import logging
import os
import random
import signal
import tempfile
import time

log = logging.getLogger("analysis")


class Repository:
    def __init__(self, name):
        self.name = name
        self.folder = tempfile.TemporaryDirectory(prefix=f"{name}_")
        self.rng = random.Random(name)

    def apply(self, build):
        path = os.path.join(self.folder.name, f"D{build['diff'] % 50}.patch")
        with open(path, "w") as f:
            for _ in range(200):
                f.write(f"+{self.rng.randrange(10 ** 12)}\n")
        with open(path, "rb") as f:
            return hashlib.sha1(f.read()).hexdigest()


def repository_worker(name, builds, applied):
    """Applies each build to the clone and passes it on for analysis."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    repository = Repository(name)
    n = 0
    while True:
        build = builds.get()
        if build is None:
            break
        revision = repository.apply(build)
        applied.put({**build, "revision": revision, "repository": name})
        n += 1
    applied.put(None)
    log.info("%s: %d builds applied", name, n)


def analyzer(applied, reports, n_repositories, seconds):
    """Runs the checks, one build after the other, as the license of the checker allows."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    open_inputs = n_repositories
    while open_inputs:
        build = applied.get()
        if build is None:
            open_inputs -= 1
            continue
        issues = int(build["revision"][:2], 16) % 5
        time.sleep(seconds)
        reports.put({"diff": build["diff"], "repository": build["repository"], "issues": issues})
    reports.put(None)
