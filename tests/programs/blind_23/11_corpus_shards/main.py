import argparse
import collections
import logging
import os
import tempfile
import threading
import time

from corpus import ShardSource
from filters import FilterProcess, serve_scripts, sort_unique

log = logging.getLogger("clean")


def parse_args():
    p = argparse.ArgumentParser(description="clean and deduplicate crawl shards")
    p.add_argument("--shards", type=int, default=600)
    p.add_argument("--docs", type=int, default=4000)
    p.add_argument("--first-mixed", type=int, default=6, help="first shard with text outside ascii")
    p.add_argument("--seed", type=int, default=7)
    p.add_argument("--out", default=None)
    p.add_argument("--max-minutes", type=float, default=2.2)
    return p.parse_args()


def start_clock(minutes):
    """Same wall time limit as the batch queue gives us."""
    def expire():
        time.sleep(minutes * 60)
        os._exit(0)
    threading.Thread(target=expire, daemon=True, name="clock").start()


class ShardCleaner:
    def __init__(self, out_dir, max_minutes):
        self.out_dir = out_dir
        self.max_minutes = max_minutes
        self.scripts = None
        self.stats = collections.Counter()

    def _filter(self, name, target, *args):
        def run(source, sink, *rest):
            start_clock(self.max_minutes)
            target(source, sink, *rest)
        return FilterProcess(name, run, *args).start()

    def script_of(self, text):
        if text.isascii():
            return "latin"
        if self.scripts is None:
            self.scripts = self._filter("scripts", serve_scripts)
        return self.scripts.ask(text)

    def clean(self, index, documents):
        began = time.perf_counter()
        sorter = self._filter(f"sorter-{index:04d}", sort_unique)
        count = 0
        for text in documents:
            script = self.script_of(text)
            self.stats[script] += 1
            sorter.send(f"{script}\t{text}")
            count += 1
        kept = sorter.finish()
        path = os.path.join(self.out_dir, f"shard-{index:04d}.tsv")
        with open(path, "w", encoding="utf-8") as f:
            f.write("\n".join(kept))
        log.info("shard %d: %d documents, %d kept, %.2fs", index, count, len(kept), time.perf_counter() - began)


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(process)d %(name)s %(message)s")
    start_clock(args.max_minutes)
    out_dir = args.out or tempfile.mkdtemp(prefix="shards-")
    source = ShardSource(args.shards, args.docs, args.first_mixed, args.seed)
    cleaner = ShardCleaner(out_dir, args.max_minutes)
    log.info("cleaning %d shards into %s", len(source), out_dir)
    for index, documents in source:
        cleaner.clean(index, documents)
        time.sleep(0.3)
    log.info("scripts seen: %s", dict(cleaner.stats))


if __name__ == "__main__":
    main()
