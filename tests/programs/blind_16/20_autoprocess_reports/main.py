import argparse
import logging
import multiprocessing
import os
import random
import signal
import tempfile
import time

from database import Database
from processing import process

log = logging.getLogger("process")


def parse_args():
    p = argparse.ArgumentParser(description="process finished analyses and write their reports")
    p.add_argument("--parallel", type=int, default=3)
    p.add_argument("--maxtasksperchild", type=int, default=12)
    p.add_argument("--seconds", type=float, default=100)
    p.add_argument("--rate", type=float, default=3.5, help="analyses that the sandbox finishes per second")
    return p.parse_args()


def init_worker():
    signal.signal(signal.SIGINT, signal.SIG_IGN)


class Sandbox:
    """Adds finished analyses to the database at the pace of the guests."""

    def __init__(self, db, rate):
        self.db, self.rate, self.start, self.added = db, rate, time.time(), 0
        self.rng = random.Random(5)

    def tick(self):
        due = int((time.time() - self.start) * self.rate)
        while self.added < due:
            self.db.add("sample_%08x.bin" % self.rng.getrandbits(32), self.rng.choice(("exe", "doc", "url")))
            self.added += 1


def autoprocess(args, folder):
    db = Database(os.path.join(folder, "cuckoo.db"))
    sandbox = Sandbox(db, args.rate)
    # a fresh worker now and then, in case some processing module does not give its memory back
    pool = multiprocessing.Pool(args.parallel, init_worker, maxtasksperchild=args.maxtasksperchild)
    pending, pids, last = {}, set(), time.time()
    end = time.time() + args.seconds
    while time.time() < end or pending:
        if time.time() < end:
            sandbox.tick()
        if len(pending) < 2 * args.parallel and time.time() < end:
            for task_id, sample, category in db.list_tasks("completed", 2 * args.parallel - len(pending)):
                db.set_status(task_id, "processing")
                pending[task_id] = pool.apply_async(process, (task_id, sample, category, folder))
        for task_id, result in list(pending.items()):
            if result.ready():
                del pending[task_id]
                try:
                    pids.add(result.get()[2])
                    db.set_status(task_id, "reported")
                except Exception:
                    log.exception("task #%d: processing failed", task_id)
                    db.set_status(task_id, "failed_processing")
        if time.time() - last > 10:
            last = time.time()
            log.info("reported %d, waiting %d, failed %d", db.count("reported"), db.count("completed"),
                     db.count("failed_processing"))
        time.sleep(0.1)
    pool.close()
    pool.join()
    log.info("stopped: %d reports by %d workers", db.count("reported"), len(pids))


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    with tempfile.TemporaryDirectory(prefix="cuckoo_") as folder:
        autoprocess(args, folder)


if __name__ == "__main__":
    main()
