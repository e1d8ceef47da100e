"""Search a source tree for a term with several processes.

usage: main.py [term] [--root DIR] [--workers N]
"""
import argparse
import logging
import multiprocessing as mp
import tempfile
import time
from pathlib import Path

from corpus import build_tree
from searcher import Indexer, Printer, SearchWorker

log = logging.getLogger("arrow")


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("term", nargs="?", default="the")
    p.add_argument("--root", type=Path, default=None, help="tree to search (default: a generated one)")
    p.add_argument("--workers", type=int, default=3)
    p.add_argument("--files", type=int, default=700, help="files in the generated tree")
    p.add_argument("--limit", type=int, default=250, help="matches shown per search")
    p.add_argument("--seed", type=int, default=3)
    return p.parse_args()


def search(root, term, args, ctx):
    start = time.perf_counter()
    files = ctx.Queue()
    output = ctx.Queue()
    final = ctx.Queue()

    indexer = Indexer(root, files, args.workers)
    workers = [SearchWorker(i, term, files, output) for i in range(args.workers)]
    printer = Printer(output, final, n_workers=args.workers, limit=args.limit)

    for p in (indexer, *workers, printer):
        p.start()
    indexer.join()
    log.info("indexed %s", root)
    shown = final.get()
    log.info("%d matches shown", shown)
    for p in workers:
        p.join()
        log.info("%s joined", p.name)
    printer.join()
    return shown, time.perf_counter() - start


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    ctx = mp.get_context("fork")
    with tempfile.TemporaryDirectory(prefix="arrow_") as tmp:
        root = args.root or build_tree(Path(tmp) / "src", args.files, args.seed)
        for term in ("asdfadsf", "Popup", args.term):
            log.info("searching %r", term)
            shown, took = search(root, term, args, ctx)
            log.info("%r: %d matches in %.2f s", term, shown, took)


if __name__ == "__main__":
    main()
