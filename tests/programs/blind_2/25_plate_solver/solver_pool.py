import os
import queue
import time
from multiprocessing import Process, Queue

import numpy as np


def centroid(frame, threshold=4.0):
    bg, sd = np.median(frame), frame.std()
    ys, xs = np.nonzero(frame > bg + threshold * sd)
    w = frame[ys, xs] - bg
    return np.stack([xs, ys, w], axis=1)


def worker(tasks, results):
    while True:
        try:
            frame_id, seed = tasks.get(timeout=1.0)
        except queue.Empty:
            break
        rng = np.random.default_rng(seed)
        frame = rng.normal(100, 5, (256, 256))
        for _ in range(40):
            frame[rng.integers(256), rng.integers(256)] += 400
        time.sleep(0.1)
        results.put((frame_id, centroid(frame), frame.astype(np.float32)))
    # skip the camera driver's exit handlers, they crash now and then
    os._exit(0)


class SolverPool:
    def __init__(self, n):
        self.tasks, self.results = Queue(), Queue()
        self.procs = [Process(target=worker, args=(self.tasks, self.results), name=f"solver-{i}") for i in range(n)]

    def start(self):
        for p in self.procs:
            p.start()

    def collect(self, n):
        for _ in range(n):
            yield self.results.get()

    def join(self):
        for p in self.procs:
            p.join()
