"""Cell recogniser.  The layout engine keeps its glyph atlas for the whole life of a process."""
import logging
import os
import time

import numpy as np

log = logging.getLogger("tableocr.recogniser")

_engine = None


class LayoutEngine:
    def __init__(self):
        self.atlas = []
        self.templates = np.random.default_rng(0).random((64, 24, 24), dtype=np.float32)

    def segment(self, page):
        rng = np.random.default_rng(page["seed"])
        image = rng.random((page["rows"] * 8, 1024), dtype=np.float32)
        edges = np.abs(np.diff(image, axis=0)).sum(axis=1)
        self.atlas.append(image[:, :].copy())
        self.atlas.append(np.ones((1200, 1024), dtype=np.float32) * image.mean())
        return edges

    def classify(self, edges):
        cells = 0
        for template in self.templates:
            response = np.convolve(edges, template.ravel()[:128], mode="valid")
            cells += int((response > response.mean() + 2 * response.std()).sum())
        return cells


def init_process():
    global _engine
    time.sleep(0.4)
    _engine = LayoutEngine()
    log.info("recogniser ready")


def recognise_page(page):
    edges = _engine.segment(page)
    cells = _engine.classify(edges)
    time.sleep(0.25)
    return cells, os.getpid()
