"""Runs a small sweep of regression nets on a process pool and writes a table."""
import argparse
import csv
import itertools
import logging
import multiprocessing as mp
import time
from pathlib import Path

from trial import run_trial

log = logging.getLogger("sweep")

GRID = {
    "--lr": ["0.003", "0.01"],
    "--width": ["64", "128"],
    "--act": ["relu", "gelu", "swish"],
}


class ResultTable:
    def __init__(self, path: Path):
        path.parent.mkdir(parents=True, exist_ok=True)
        self.file = path.open("w", newline="")
        self.writer = csv.DictWriter(self.file, ["line", "loss", "seconds", "pid"])
        self.writer.writeheader()
        self.best = None

    def add(self, row):
        self.writer.writerow(row)
        self.file.flush()
        if self.best is None or row["loss"] < self.best["loss"]:
            self.best = row

    def close(self):
        self.file.close()


def expand(grid, extra):
    keys = list(grid)
    for values in itertools.product(*grid.values()):
        yield " ".join(f"{k} {v}" for k, v in zip(keys, values)) + " " + extra


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--processes", type=int, default=3)
    p.add_argument("--steps", type=int, default=250)
    p.add_argument("--out", type=Path, default=Path("runs/sweep.csv"))
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")

    lines = list(expand(GRID, f"--steps {args.steps}"))
    table = ResultTable(args.out)
    log.info("%d trials on %d processes", len(lines), args.processes)
    t0 = time.time()
    with mp.Pool(args.processes) as pool:
        for n, row in enumerate(pool.imap_unordered(run_trial, lines), 1):
            table.add(row)
            log.info("[%d/%d] %s loss %.4f (%.1f s)", n, len(lines), row["line"], row["loss"], row["seconds"])
    log.info("best: %s, %.1f s in all", table.best, time.time() - t0)
    table.close()


if __name__ == "__main__":
    main()
