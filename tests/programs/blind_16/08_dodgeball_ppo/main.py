"""Trains a policy with PPO on environments that run in their own processes."""
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import logging

from env_manager import SubprocessEnvManager
from ppo import PPOTrainer
from controller import TrainerController


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--run-id", default="test")
    p.add_argument("--num-envs", type=int, default=3)
    p.add_argument("--agents", type=int, default=16, help="agents in one environment")
    p.add_argument("--buffer-size", type=int, default=10240)
    p.add_argument("--batch-size", type=int, default=256)
    p.add_argument("--num-epoch", type=int, default=30)
    p.add_argument("--summary-freq", type=int, default=5000)
    p.add_argument("--max-time", type=float, default=100.0, help="seconds")
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s [%(name)s] %(message)s")
    manager = SubprocessEnvManager(args.num_envs, args.agents)
    trainer = PPOTrainer(manager.obs_dim, manager.act_dim, args)
    TrainerController(manager, trainer, args).run()


if __name__ == "__main__":
    main()
