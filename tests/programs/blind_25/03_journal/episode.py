import math
import random


class Pendulum:
    """A small swing-up environment."""

    def __init__(self, seed):
        self.rng = random.Random(seed)

    def reset(self):
        self.theta = self.rng.uniform(-math.pi, math.pi)
        self.omega = self.rng.uniform(-1, 1)
        return self.observe()

    def observe(self):
        return [math.cos(self.theta), math.sin(self.theta), self.omega]

    def step(self, torque):
        self.omega += 0.05 * (15 * math.sin(self.theta) + 3 * torque)
        self.omega = max(-8.0, min(8.0, self.omega))
        self.theta += 0.05 * self.omega
        reward = -(self.theta ** 2 + 0.1 * self.omega ** 2)
        return self.observe(), reward, abs(self.omega) >= 8.0


class Episode:
    """One trajectory. Hooks are called with the closed episode."""

    def __init__(self, number, journal):
        self.number, self.journal = number, journal
        self.steps = []
        self.closed = False
        self.hooks = [self._summarise]

    def add(self, obs, action, reward):
        self.steps.append({"obs": obs, "action": action, "reward": reward})

    def close(self):
        self.closed = True
        for hook in self.hooks:
            hook()

    def _summarise(self):
        self.journal.write("episode", number=self.number, length=len(self.steps),
                           ret=sum(s["reward"] for s in self.steps), trace=self.steps[-32:])

    def __del__(self):
        if not self.closed:
            self.journal.write("episode_abandoned", number=self.number, length=len(self.steps))
