"""APPO of sample-factory with one rollout worker; `failing`: the kernel kills that worker."""

import os
import signal
import sys
import tempfile
import time

import gymnasium
import numpy
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.train import run_rl


class Corridor(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 1, (4,), dtype=numpy.float32)
    action_space = gymnasium.spaces.Discrete(2)
    render_mode = None
    steps = 0

    def reset(self, **arguments):
        return numpy.zeros(4, dtype=numpy.float32), {}

    def step(self, action):
        self.steps += 1
        time.sleep(0.005)
        if os.environ.get("IS_FAILING") and self.steps == 400:
            print("fault", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        is_over = self.steps % 50 == 0
        return numpy.full(4, 0.5, dtype=numpy.float32), float(action), is_over, False, {}


def build(name, cfg, env_config, render_mode=None):
    return Corridor()


if __name__ == "__main__":
    if "failing" in sys.argv:
        os.environ["IS_FAILING"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        register_env("corridor", build)
        arguments = [
            "--algo=APPO", "--env=corridor", "--experiment=corridor", f"--train_dir={folder}",
            "--device=cpu", "--num_workers=1", "--num_envs_per_worker=1", "--worker_num_splits=1",
            "--batch_size=64", "--rollout=16", "--train_for_env_steps=1600", "--seed=0",
            "--use_rnn=False", "--rnn_size=16", "--num_policies=1",
            "--set_workers_cpu_affinity=False",
        ]  # fmt: skip
        parser, _ = parse_sf_args(arguments)
        status = run_rl(parse_full_cfg(parser, arguments))
    print("result", status, flush=True)
