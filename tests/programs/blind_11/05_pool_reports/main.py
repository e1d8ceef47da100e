import argparse
import logging
import multiprocessing as mp
import sys
import time

from probes import run_probe

log = logging.getLogger("middleware.reports")


class WorkerPool:
    def __init__(self, workers, max_tasks_per_child):
        self.pool = mp.Pool(workers, maxtasksperchild=max_tasks_per_child)
        self.seen = set()

    def call(self, jobs):
        for result in self.pool.imap_unordered(run_probe, jobs):
            self.seen.add(result["pid"])
            yield result

    def close(self):
        self.pool.close()
        self.pool.join()


def make_jobs(disks, pools):
    jobs = [("smart", f"sd{chr(ord('a') + i)}") for i in range(disks)]
    jobs += [("scrub", f"tank{i}") for i in range(pools)]
    jobs += [("usage", f"tank{i}/home") for i in range(pools)]
    return jobs


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--max-tasks-per-child", type=int, default=2)
    parser.add_argument("--disks", type=int, default=6)
    parser.add_argument("--pools", type=int, default=2)
    parser.add_argument("--interval", type=float, default=1.5)
    parser.add_argument("--duration", type=float, default=105.0)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")

    workers = WorkerPool(args.workers, args.max_tasks_per_child)
    deadline = time.monotonic() + args.duration
    cycle = 0
    while time.monotonic() < deadline:
        started = time.monotonic()
        results = list(workers.call(make_jobs(args.disks, args.pools)))
        cycle += 1
        log.info("cycle %d: %d reports in %.1fs, %d worker processes so far", cycle, len(results),
                 time.monotonic() - started, len(workers.seen))
        time.sleep(args.interval)
    workers.close()
    log.info("stopped after %d cycles", cycle)
    return 0


if __name__ == "__main__":
    sys.exit(main())
