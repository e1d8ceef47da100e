"""Library scanner: enqueues files as they appear, worker processes identify them through one SQLite database."""
import argparse
import logging
import multiprocessing as mp
import os
import tempfile
import time

from db import connect, create
from tasks import worker_main

log = logging.getLogger("scanner")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--chunk", type=int, default=12)
    parser.add_argument("--files", type=int, default=8000)
    parser.add_argument("--duration", type=float, default=100)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")

    path = os.path.join(tempfile.mkdtemp(prefix="library_"), "library.db")
    create(path)
    stop = mp.Event()
    workers = [mp.Process(target=worker_main, name=f"task-{i}", args=(path, f"task-{i}", args.chunk, stop))
               for i in range(args.workers)]
    for w in workers:
        w.start()
    conn = connect(path)
    end, added = time.monotonic() + args.duration, 0
    while time.monotonic() < end:
        new = [(f"/library/{added + i:06d}.nsp",) for i in range(min(380, args.files - added))]
        if new:
            conn.execute("BEGIN IMMEDIATE")
            conn.executemany("INSERT INTO tasks(file) VALUES (?)", new)
            conn.execute("COMMIT")
            added += len(new)
        counts = dict(conn.execute("SELECT status, count(*) FROM tasks GROUP BY status"))
        log.info("pending %d running %d completed %d", counts.get("pending", 0), counts.get("running", 0),
                 counts.get("completed", 0))
        time.sleep(5)
    stop.set()
    for w in workers:
        w.join()
    done, = conn.execute("SELECT value FROM counters WHERE name='identified'").fetchone()
    log.info("identified %d of %d files", done, added)


if __name__ == "__main__":
    main()
