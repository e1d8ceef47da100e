import logging
import time
from multiprocessing import Process

import numpy as np
import torch

from archive import CellArchive

log = logging.getLogger("explorer")


class Arm:
    """Planar arm with four joints: angles and velocities."""

    def __init__(self, rng):
        self.rng = rng

    def reset(self):
        self.angle, self.speed = self.rng.normal(0, 0.1, 4), np.zeros(4)
        return np.concatenate([self.angle, self.speed])

    def peek(self, actions):
        speed = 0.95 * self.speed + 0.2 * actions
        return np.concatenate([self.angle + 0.1 * speed, speed], axis=1)

    def step(self, action):
        self.speed = 0.95 * self.speed + 0.2 * action
        self.angle = self.angle + 0.1 * self.speed
        tip = np.cos(np.cumsum(self.angle)).sum()
        return np.concatenate([self.angle, self.speed]), float(tip)


class Explorer(Process):
    def __init__(self, index, args, episodes, weights):
        super().__init__(name=f"explorer-{index}", daemon=True)
        self.index, self.args, self.episodes, self.weights = index, args, episodes, weights

    def run(self):
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
        torch.set_num_threads(1)
        rng = np.random.default_rng(self.args.seed + self.index)
        env = Arm(rng)
        archive = CellArchive(self.args.resolution, self.args.max_cells)
        count = 0
        while True:
            obs, total, trajectory = env.reset(), 0.0, []
            with self.weights.get_lock():
                matrix = np.array(self.weights[:]).reshape(4, 8)
            for _ in range(self.args.horizon):
                candidates = np.tanh(matrix @ obs + rng.normal(0, 0.7, (self.args.candidates, 4)))
                bonuses = [archive.bonus(o) for o in env.peek(candidates)]
                action = candidates[int(np.argmax(bonuses))]
                next_obs, reward = env.step(action)
                total += reward
                archive.record(next_obs, total)
                trajectory.append(np.concatenate([obs, action, [reward + max(bonuses)]]))
                obs = next_obs
                time.sleep(0.002)
            self.episodes.put(np.array(trajectory, dtype=np.float32))
            count += 1
            if count % 20 == 0:
                log.info("%s: %d episodes, %d cells recorded, return %.1f", self.name, count, len(archive.recorded), total)
