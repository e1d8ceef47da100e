import argparse
import logging
import multiprocessing as mp
import time

import numpy as np

log = logging.getLogger("interference")


class PropagationModel:
    def __init__(self, n_paths=40):
        self.n_paths = n_paths
        self.terrain = np.random.default_rng(0).normal(size=(64, 64))

    def path_loss(self, cell):
        loss = 0.0
        for k in range(self.n_paths):
            time.sleep(0.002)
            loss += float(self.terrain[(cell + k) % 64].sum())
        return loss / self.n_paths


class InterferenceTask(mp.Process):
    def __init__(self, rank, cells, totals, lock, counter):
        super().__init__(name=f"grid-{rank}", daemon=True)
        self.cells, self.totals = cells, totals
        self.lock, self.counter = lock, counter
        self.model = PropagationModel()

    def run(self):
        for cell in self.cells:
            key = cell % 32
            with self.lock:
                current = self.totals.get(key, 0.0)
                self.totals[key] = current + self.model.path_loss(cell)
            with self.counter.get_lock():
                self.counter.value += 1


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--procs", type=int, default=4)
    ap.add_argument("--cells", type=int, default=4000)
    ap.add_argument("--max-time", type=float, default=90)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    manager = mp.Manager()
    totals = manager.dict()
    lock = mp.Lock()
    counter = mp.Value("i", 0)
    tasks = [InterferenceTask(r, range(r, args.cells, args.procs), totals, lock, counter)
             for r in range(args.procs)]
    start = time.time()
    for t in tasks:
        t.start()
    while any(t.is_alive() for t in tasks) and time.time() - start < args.max_time:
        time.sleep(5)
        log.info("%d / %d cells, %.1f cells/s", counter.value, args.cells,
                 counter.value / (time.time() - start))
    for t in tasks:
        t.terminate()
    manager.shutdown()


if __name__ == "__main__":
    main()
