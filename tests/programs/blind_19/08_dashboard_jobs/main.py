"""Background jobs of the community dashboard: queries fill the store, graph callbacks draw from it."""
import argparse
import itertools
import logging
import multiprocessing as mp
import tempfile
import time
from collections import deque

from pool import TaskPool
from store import ResultStore

log = logging.getLogger("dashboard")


def visits(first_repo):
    """The jobs that the visitors' page loads ask for, repository by repository."""
    for repo in itertools.count(first_repo):
        yield ("commits_query", repo)
        yield ("commits_over_time", repo)
        yield ("contributor_gaps", repo)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--workers", type=int, default=4)
    p.add_argument("--first-repo", type=int, default=18)
    p.add_argument("--time-limit", type=float, default=12)
    p.add_argument("--rate", type=float, default=5.0, help="jobs per second")
    p.add_argument("--max-seconds", type=float, default=120)
    args = p.parse_args()
    mp.set_start_method("fork")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")

    with tempfile.TemporaryDirectory(prefix="dashboard-") as root:
        pool = TaskPool(ResultStore(root), args.workers, args.time_limit)
        jobs, backlog = visits(args.first_repo), deque()
        started = last = time.monotonic()
        submitted = 0
        while time.monotonic() - started < args.max_seconds:
            while submitted < (time.monotonic() - started) * args.rate:
                backlog.append(next(jobs))
                submitted += 1
            while backlog and pool.idle():
                pool.dispatch(backlog.popleft())
            if not pool.workers:
                log.error("no workers left")
                break
            pool.poll(0.1)
            if time.monotonic() - last > 5:
                last = time.monotonic()
                log.info("%d callbacks done, %d waiting, %d workers busy", pool.done, len(backlog),
                         len(pool.workers) - len(pool.idle()))
        for w in pool.workers:
            w.process.terminate()
        log.info("stopping: %d done, lost jobs: %s", pool.done, pool.failed)


if __name__ == "__main__":
    main()
