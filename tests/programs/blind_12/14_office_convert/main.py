"""Conversion service: documents are converted by office processes that are renewed after some tasks."""
import argparse
import logging
import multiprocessing
import random
import time

from convert import convert, start_office

log = logging.getLogger("service")


class OfficePool:
    def __init__(self, processes, max_tasks_per_process):
        self.pool = multiprocessing.Pool(processes, initializer=start_office,
                                         initargs=(["Liberation Sans", "Liberation Serif"],),
                                         maxtasksperchild=max_tasks_per_process)
        self.pids = set()

    def convert_all(self, jobs):
        for name, size, pid, cached in self.pool.imap_unordered(convert, jobs):
            if pid not in self.pids:
                self.pids.add(pid)
                log.info("office process %d is serving (%d started so far)", pid, len(self.pids))
            yield name, size, cached

    def close(self):
        self.pool.close()
        self.pool.join()


def incoming(seconds, rate):
    rng = random.Random(4)
    end, n = time.time() + seconds, 0
    while time.time() < end:
        n += 1
        yield f"contract_{n:05d}.docx", rng.randrange(3, 12), rng.choice(["Liberation Sans", "Liberation Serif"])
        time.sleep(rng.expovariate(rate))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--processes", type=int, default=3)
    p.add_argument("--max-tasks-per-process", type=int, default=25)
    p.add_argument("--rate", type=float, default=6.0, help="documents per second")
    p.add_argument("--seconds", type=float, default=100)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    office = OfficePool(args.processes, args.max_tasks_per_process)
    done, size = 0, 0
    start = time.time()
    for name, n, cached in office.convert_all(incoming(args.seconds, args.rate)):
        done += 1
        size += n
        if done % 100 == 0:
            log.info("%d documents, %.1f MB, %.1f/s, last %s (cache %d)", done, size / 1e6,
                     done / (time.time() - start), name, cached)
    office.close()
    log.info("closed: %d documents, %d office processes used", done, len(office.pids))


if __name__ == "__main__":
    main()
