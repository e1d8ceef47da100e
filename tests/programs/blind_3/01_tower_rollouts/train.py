import argparse
import logging
import time

import numpy as np

from vec_env import SubprocVecEnv

log = logging.getLogger("ppo")


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--n-envs", type=int, default=4)
    ap.add_argument("--n-steps", type=int, default=64)
    ap.add_argument("--max-time", type=float, default=90)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    layouts = ["flat", "arch", "city", "ramp"][: args.n_envs]
    venv = SubprocVecEnv(layouts)
    obs = venv.reset()
    w = np.random.default_rng(0).normal(size=(16, 16)).astype(np.float32) * 0.1
    start = time.time()
    update = 0
    while time.time() - start < args.max_time:
        t0 = time.time()
        rewards = []
        for _ in range(args.n_steps):
            obs, rew, done = venv.step(np.tanh(obs @ w))
            rewards.append(rew.mean())
        w += 0.001 * np.sign(np.mean(rewards)) * np.random.normal(size=w.shape).astype(np.float32)
        update += 1
        fps = args.n_steps * args.n_envs / (time.time() - t0)
        log.info("update %d fps %.0f reward %.3f", update, fps, np.mean(rewards))
    venv.close()


if __name__ == "__main__":
    main()
