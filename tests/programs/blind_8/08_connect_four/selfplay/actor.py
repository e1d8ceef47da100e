import logging
import multiprocessing as mp
import time

import numpy as np

log = logging.getLogger("alpha")


class Actor(mp.Process):
    def __init__(self, index, trajectories, stop):
        super().__init__(name=f"actor-{index}")
        self.index = index
        self.trajectories = trajectories
        self.stop_event = stop

    def play(self, rng):
        boards = np.zeros((42, 3, 6, 7), dtype=np.float32)
        for move in range(1, 42):
            boards[move] = boards[move - 1]
            boards[move, move % 2, rng.integers(6), rng.integers(7)] = 1
        time.sleep(0.08)
        return boards, float(rng.choice([-1, 0, 1]))

    def run(self):
        rng = np.random.default_rng(self.index)
        while not self.stop_event.is_set():
            self.trajectories.put(self.play(rng))
        log.info("exiting")
