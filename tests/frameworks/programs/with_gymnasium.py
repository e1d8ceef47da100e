"""Environments of gymnasium, each in a process."""

import time

import gymnasium

if __name__ == "__main__":
    environments = gymnasium.vector.AsyncVectorEnv(
        [lambda: gymnasium.make("CartPole-v1") for _ in range(3)]
    )
    environments.reset(seed=0)
    total = 0.0
    for _ in range(600):
        _, rewards, _, _, _ = environments.step([0, 1, 0])
        total += rewards.sum()
        time.sleep(0.01)
    print("result", total)
    environments.close()
