"""PPO of Stable-Baselines3 with environments in processes."""

import time

from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import SubprocVecEnv


class Pause(BaseCallback):
    def _on_step(self):
        time.sleep(0.01)
        return True


if __name__ == "__main__":
    environments = make_vec_env(
        "CartPole-v1",
        2,
        seed=0,
        vec_env_cls=SubprocVecEnv,
        vec_env_kwargs={"start_method": "fork"},
    )
    model = PPO("MlpPolicy", environments, n_steps=64, seed=0, device="cpu")
    model.learn(800, callback=Pause())
    print("result", model.num_timesteps)
    environments.close()
