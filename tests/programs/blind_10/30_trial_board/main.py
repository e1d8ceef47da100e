"""Runs a grid of trials in a few processes and prints the board."""
import argparse
import itertools
import logging
import multiprocessing as mp

from trial import Trial, trial_worker

log = logging.getLogger("board")


class Board:
    def __init__(self, results, wanted):
        self.results = results
        self.wanted = wanted
        self.rows = {}

    def fill(self):
        while len(self.rows) < self.wanted:
            row = self.results.get()
            self.rows[row["number"]] = row
            log.info("trial %d loss %.3f (%d of %d)", row["number"], row["loss"], len(self.rows), self.wanted)

    def show(self):
        for row in sorted(self.rows.values(), key=lambda r: r["loss"])[:5]:
            log.info("%8.3f  %s", row["loss"], row["config"])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lrs", type=float, nargs="+", default=[0.001, 0.002, 0.004, 0.008])
    parser.add_argument("--schedules", nargs="+", default=["constant", "warmup"])
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    trials = [Trial(n, lr, schedule) for n, (schedule, lr) in enumerate(itertools.product(args.schedules, args.lrs))]
    results = mp.Queue()
    workers = [mp.Process(target=trial_worker, args=(trials[i::args.workers], results), name=f"runner-{i}")
               for i in range(args.workers)]
    for worker in workers:
        worker.start()
    board = Board(results, len(trials))
    board.fill()
    board.show()
    for worker in workers:
        worker.join()


if __name__ == "__main__":
    main()
