import csv
import logging

import numpy as np

log = logging.getLogger("report")


class SlideReport:
    """Collects tile scores, keeps the running best tiles of every slide and writes one CSV."""

    def __init__(self, manifest, path, keep=5):
        self.tissue = {name: np.zeros(grid, np.float32) for name, grid in manifest.items()}
        self.best = {name: [] for name in manifest}
        self.keep = keep
        self.done = 0
        self._file = open(path, "w", newline="")
        self._csv = csv.writer(self._file)
        self._csv.writerow(["slide", "row", "col", "tissue", "entropy"])

    def add(self, result):
        slide = result["slide"]
        total = sum(result["hist"])
        peak = max(result["hist"]) / total
        self._csv.writerow([slide, result["row"], result["col"], f"{result['tissue']:.4f}", f"{1 - peak:.4f}"])
        self.tissue[slide][result["row"], result["col"]] = result["tissue"]
        best = self.best[slide]
        best.append((result["tissue"], result["row"], result["col"]))
        best.sort(reverse=True)
        del best[self.keep:]
        self.done += 1
        if self.done % 100 == 0:
            log.info("%d tiles scored", self.done)

    def close(self):
        self._file.close()
        for slide, best in self.best.items():
            log.info("%s: mean tissue %.3f, best %.3f", slide, self.tissue[slide].mean(), best[0][0] if best else 0.0)
