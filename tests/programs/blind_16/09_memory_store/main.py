"""A memory service: a server and several session processes share one SQLite database."""
import argparse
import logging
import multiprocessing as mp
import tempfile
import time
from pathlib import Path

from connection import SerializedConnection
from service import consolidate, session

log = logging.getLogger("genesis")


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--sessions", type=int, default=4)
    p.add_argument("--seconds", type=float, default=100.0)
    p.add_argument("--consolidate-every", type=float, default=8.0)
    p.add_argument("--busy-timeout", type=float, default=0.2)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(processName)s %(message)s")

    with tempfile.TemporaryDirectory(prefix="memories_") as tmp:
        path = str(Path(tmp) / "memories.db")
        db = SerializedConnection(path, args.busy_timeout)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("CREATE TABLE memories (id INTEGER PRIMARY KEY, session TEXT, created REAL, "
                   "content TEXT, salience REAL)")
        db.close()
        ctx = mp.get_context("fork")
        end = time.time() + args.seconds
        processes = [ctx.Process(target=session, args=(path, i, end, args.busy_timeout), name=f"mcp-{i}")
                     for i in range(args.sessions)]
        processes.append(ctx.Process(target=consolidate, name="server",
                                     args=(path, end, args.consolidate_every, args.busy_timeout)))
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        db = SerializedConnection(path, args.busy_timeout)
        rows = db.query("SELECT session, count(*) FROM memories GROUP BY session")
        log.info("stored: %s", dict(rows))
        db.close()


if __name__ == "__main__":
    main()
