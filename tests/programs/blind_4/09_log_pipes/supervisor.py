"""Start the ingest workers, merge their log lines into one stream, summarise at the end."""
import argparse
import collections
import multiprocessing as mp
import sys
import threading
import time

from ingest import ingest_worker


class LogWatcher(threading.Thread):
    def __init__(self, name, conn, counts):
        super().__init__(name=f"watch-{name}")
        self.worker, self.conn, self.counts = name, conn, counts

    def run(self):
        while True:
            try:
                level, line = self.conn.recv()
            except EOFError:
                break
            self.counts[level] += 1
            sys.stdout.write(f"{time.strftime('%H:%M:%S')} {self.worker} {level} {line}\n")
            sys.stdout.flush()


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--workers", type=int, default=3)
    p.add_argument("--files", type=int, default=9)
    args = p.parse_args()

    ctx = mp.get_context("fork")
    counts = collections.Counter()
    workers, watchers = [], []
    for i in range(args.workers):
        reader, writer = ctx.Pipe(duplex=False)
        files = [f"day-{n:02d}.csv" for n in range(i, args.files, args.workers)]
        proc = ctx.Process(target=ingest_worker, args=(i, files, writer), name=f"ingest-{i}")
        proc.start()
        watcher = LogWatcher(proc.name, reader, counts)
        workers.append((proc, writer))
        watchers.append(watcher)
    for watcher in watchers:
        watcher.start()

    for proc, _ in workers:
        proc.join()
    print(f"workers finished: {[proc.exitcode for proc, _ in workers]}", flush=True)
    for watcher in watchers:
        watcher.join()
    print(f"summary: {dict(counts)}", flush=True)


if __name__ == "__main__":
    main()
