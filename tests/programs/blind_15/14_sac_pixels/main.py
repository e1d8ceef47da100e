"""Off-policy agent on pixel observations: env processes fill a replay buffer, main trains."""
import argparse
import logging
import time

import numpy as np
import torch

from agent import PixelCritic
from buffers import ReplayBuffer
from vec_env import SubprocVecEnv

log = logging.getLogger("sac")


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--n-envs", type=int, default=2)
    p.add_argument("--buffer-size", type=int, default=9000)
    p.add_argument("--batch-size", type=int, default=24)
    p.add_argument("--train-every", type=int, default=16)
    p.add_argument("--max-seconds", type=float, default=100)
    p.add_argument("--steps-per-second", type=float, default=95)
    return p.parse_args()


def rss_mb():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * 4096 / 2 ** 20


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    env = SubprocVecEnv(args.n_envs)
    buffer = ReplayBuffer(args.buffer_size, (4, 84, 84), args.n_envs)
    agent = PixelCritic(env.n_actions)
    obs = env.reset()
    start = last = time.time()
    step = updates = 0
    loss = float("nan")
    while time.time() - start < args.max_seconds:
        actions = agent.act(obs)
        next_obs, rewards, dones = env.step(actions)
        buffer.add(obs, next_obs, actions, rewards, dones)
        obs = next_obs
        step += 1
        if step % args.train_every == 0 and step > 50:
            loss = agent.update(buffer.sample(args.batch_size))
            updates += 1
        time.sleep(max(0.0, start + step / args.steps_per_second - time.time()))
        if time.time() - last > 5:
            last = time.time()
            log.info("step %d  buffer %d%s  updates %d  loss %.4f  rss %.0f MB", step, buffer.size(),
                     " (full)" if buffer.full else "", updates, loss, rss_mb())
    env.close()
    log.info("finished %d steps", step)


if __name__ == "__main__":
    main()
