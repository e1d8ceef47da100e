"""Index functions and calls of a C source tree in parallel."""
import argparse
import logging
import multiprocessing
import os
import tempfile
import time

from csource import parse_file, write_tree

log = logging.getLogger("index")
done = None


def init_worker(counter):
    global done
    done = counter


def index_file(path):
    start = time.time()
    result = parse_file(path)
    with done.get_lock():
        done.value += 1
        n = done.value
    if n % 50 == 0 or time.time() - start > 1:
        logging.getLogger("worker").info("[%d] %d files parsed, last %s (%.1fs)", os.getpid(), n,
                                         os.path.basename(path), time.time() - start)
    return result


class Indexer:
    def __init__(self, processes):
        self.processes = processes
        self.defs = {}
        self.calls = {}

    def run(self, paths):
        counter = multiprocessing.Value("i", 0)
        with multiprocessing.Pool(self.processes, init_worker, (counter,)) as pool:
            results = pool.map(index_file, paths)
        for path, defs, calls in results:
            for name, line in defs.items():
                self.defs.setdefault(name, []).append((path, line))
            for name, targets in calls.items():
                self.calls.setdefault(name, set()).update(targets)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--processes", type=int, default=4)
    p.add_argument("--files", type=int, default=400)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    with tempfile.TemporaryDirectory(prefix="tree_") as root:
        paths = write_tree(root, args.files)
        log.info("%d files, %.1f MB", len(paths), sum(os.path.getsize(x) for x in paths) / 1e6)
        start = time.time()
        indexer = Indexer(args.processes)
        indexer.run(paths)
        log.info("%d definitions, %d callers in %.1fs", len(indexer.defs), len(indexer.calls), time.time() - start)


if __name__ == "__main__":
    main()
