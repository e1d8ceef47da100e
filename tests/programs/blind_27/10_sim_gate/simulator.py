import math
import random
import time


class Pendulum:
    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.reset()

    def reset(self):
        self.theta = self.rng.uniform(-math.pi, math.pi)
        self.omega = self.rng.uniform(-1.0, 1.0)
        self.steps = 0

    def step(self, torque, dt=0.05):
        self.omega += (-9.81 * math.sin(self.theta) + torque) * dt
        self.omega = max(-8.0, min(8.0, self.omega))
        self.theta += self.omega * dt
        self.steps += 1
        return self.steps >= 200

    def observe(self):
        return math.cos(self.theta), math.sin(self.theta), self.omega


def simulate(idx, gate, frames, ready):
    env = Pendulum(seed=100 + idx)
    ready.release()
    while True:
        gate.wait()
        chunk = []
        for _ in range(32):
            before = env.observe()
            torque = env.rng.gauss(0.0, 2.0)
            done = env.step(torque)
            chunk.append((*before, torque, *env.observe()))
            if done:
                env.reset()
        time.sleep(0.02)
        frames.put(chunk)
