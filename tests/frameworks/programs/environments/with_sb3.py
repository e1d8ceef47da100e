"""PPO of Stable-Baselines3 with environments in processes; `failing`: a reset that never ends."""

import sys
import time

import gymnasium
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import SubprocVecEnv

IS_FAILING = "failing" in sys.argv


class Maze(gymnasium.Wrapper):
    """Draws starts until one is far enough from the goal."""

    def __init__(self, env, number):
        super().__init__(env)
        self.number = number
        self.episodes = 0

    def reset(self, **arguments):
        self.episodes += 1
        observation, facts = self.env.reset(**arguments)
        if IS_FAILING and self.number == 1 and self.episodes == 4:
            print("fault", flush=True)
            while abs(observation[0]) < 9.0:
                observation, facts = self.env.reset()
        return observation, facts


class Pause(BaseCallback):
    def _on_step(self):
        time.sleep(0.01)
        return True


def build(number):
    return lambda: Maze(gymnasium.make("CartPole-v1"), number)


if __name__ == "__main__":
    environments = SubprocVecEnv([build(number) for number in range(2)], start_method="fork")
    environments.seed(0)
    model = PPO("MlpPolicy", environments, n_steps=64, seed=0, device="cpu")
    model.learn(1200, callback=Pause())
    print("result", model.num_timesteps, flush=True)
    environments.close()
