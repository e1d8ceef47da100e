"""Cross validation, one process per fold, with metrics written in the background."""
import argparse
import logging
import multiprocessing as mp
import os
import tempfile
import time

import metrics
from folds import fold_main

log = logging.getLogger("cv")


class CrossValidation:
    def __init__(self, folds, epochs):
        self.folds = folds
        self.epochs = epochs
        self.processes = []

    def launch(self):
        for fold in range(self.folds):
            for key in ("samples", "positives", "mean", "std", "missing", "duplicates", "sites", "age"):
                metrics.record(f"fold{fold}/{key}", fold)
            process = mp.Process(target=fold_main, args=(fold, self.epochs), name=f"fold-{fold}")
            time.sleep(0.3)
            process.start()
            self.processes.append(process)

    def wait(self):
        for process in self.processes:
            process.join()
            log.info("%s exit code %s", process.name, process.exitcode)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folds", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=30)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    with tempfile.TemporaryDirectory(prefix="cv_") as directory:
        metrics.configure(os.path.join(directory, "metrics.jsonl"))
        run = CrossValidation(args.folds, args.epochs)
        run.launch()
        run.wait()


if __name__ == "__main__":
    main()
