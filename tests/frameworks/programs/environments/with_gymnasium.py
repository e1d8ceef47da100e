"""Environments of gymnasium, each in a process; `failing`: one waits for a simulator's answer."""

import socket
import sys
import time

import gymnasium

IS_FAILING = "failing" in sys.argv


class Simulated(gymnasium.Wrapper):
    def __init__(self, env, number):
        super().__init__(env)
        self.number = number
        self.steps = 0
        self.simulator, self.far_end = socket.socketpair()

    def step(self, action):
        self.steps += 1
        if IS_FAILING and self.number == 1 and self.steps == 100:
            print("fault", flush=True)
            self.simulator.send(b"step")
            self.simulator.recv(100)
        return self.env.step(action)


def build(number):
    return lambda: Simulated(gymnasium.make("CartPole-v1"), number)


if __name__ == "__main__":
    environments = gymnasium.vector.AsyncVectorEnv([build(number) for number in range(3)])
    environments.reset(seed=0)
    total = 0.0
    for _ in range(800):
        _, rewards, _, _, _ = environments.step([0, 1, 0])
        total += rewards.sum()
        time.sleep(0.01)
    print("result", total, flush=True)
    environments.close()
