import logging
import time
from multiprocessing import Process

import numpy as np
import torch

from service import WeightClient

log = logging.getLogger("actor")


class PointMass:
    """2-d point that has to be steered to the origin."""

    def __init__(self, rng):
        self.rng = rng

    def reset(self):
        self.x = self.rng.uniform(-1, 1, size=2)
        self.v = np.zeros(2)
        self.t = 0
        return self._obs()

    def _obs(self):
        return np.concatenate([self.x, self.v]).astype(np.float32)

    def step(self, action):
        self.v = 0.9 * self.v + 0.1 * np.clip(action, -1, 1)
        self.x = np.clip(self.x + 0.2 * self.v, -2, 2)
        self.t += 1
        return self._obs(), -float(np.square(self.x).sum()), self.t >= 60


def make_policy():
    return torch.nn.Sequential(torch.nn.Linear(4, 64), torch.nn.Tanh(), torch.nn.Linear(64, 2))


class Actor(Process):
    def __init__(self, index, address, authkey, queue, seed):
        super().__init__(name=f"actor-{index}", daemon=True)
        self.index, self.queue, self.seed = index, queue, seed
        self.address, self.secret = address, authkey

    def run(self):
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
        torch.set_num_threads(1)
        rng = np.random.default_rng(self.seed + self.index)
        env, policy = PointMass(rng), make_policy()
        client = WeightClient(self.address, self.secret)
        version, episodes = -1, 0
        while True:
            new_version, state = client.pull()
            if state is not None and new_version != version:
                policy.load_state_dict({k: torch.from_numpy(v) for k, v in state.items()})
                version = new_version
            obs, done = env.reset(), False
            observations, actions, rewards = [], [], []
            while not done:
                with torch.no_grad():
                    mean = policy(torch.from_numpy(obs)).numpy()
                action = mean + 0.3 * rng.standard_normal(2)
                observations.append(obs)
                actions.append(action)
                obs, reward, done = env.step(action)
                rewards.append(reward)
                time.sleep(0.001)
            self.queue.put((version, np.array(observations), np.array(actions, np.float32), np.array(rewards, np.float32)))
            episodes += 1
            if episodes % 20 == 0:
                log.info("%s: %d episodes, weights v%d, return %.2f", self.name, episodes, version, sum(rewards))
