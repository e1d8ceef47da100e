import logging
import multiprocessing as mp
import time

import numpy as np

log = logging.getLogger("actor_worker")


class ActorWorker(mp.Process):
    def __init__(self, rank, traj_queue, report_queue, step_ms):
        super().__init__(name=f"actor-{rank}", daemon=True)
        self.rank, self.step_ms = rank, step_ms
        self.traj_queue, self.report_queue = traj_queue, report_queue

    def rollout(self, rng, length=16):
        obs = np.zeros((length, 12), dtype=np.float32)
        for t in range(length):
            obs[t] = rng.normal(size=12)
            time.sleep(self.step_ms / 1000)
        return obs

    def run(self):
        rng = np.random.default_rng(self.rank)
        n = 0
        while True:
            traj = self.rollout(rng)
            self.traj_queue.put((self.rank, traj))
            n += 1
            self.report_queue.put_nowait({"rank": self.rank, "n": n, "mean": float(traj.mean())})
