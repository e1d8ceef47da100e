import argparse
import logging
import multiprocessing as mp
import time

import numpy as np
import torch

from env import CartPoleWide
from ppo import PPO

log = logging.getLogger("ppo")


def run_seed(seed, args, results):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    env = CartPoleWide(seed)
    agent = PPO(4, 2, args.hidden, args.lr, args.gamma, args.lmbda, args.eps_clip, args.k_epoch)
    for episode in range(args.episodes):
        state = env.reset()
        done = False
        score = 0.0
        while not done:
            for _ in range(args.t_horizon):
                action, prob = agent.choose_action(state)
                next_state, reward, done = env.step(action)
                time.sleep(args.actuator_delay)
                agent.put_data((state, action, reward / 100.0, next_state, prob, done))
                state = next_state
                score += reward
                if done:
                    break
            loss = agent.train_net()
        results.put(("episode", seed, episode, score, loss))
    results.put(("done", seed, args.episodes, 0.0, 0.0))


def parse_args():
    p = argparse.ArgumentParser(description="PPO on the wide cart pole, one process per seed")
    p.add_argument("--seeds", type=int, nargs="+", default=[11, 23, 43])
    p.add_argument("--episodes", type=int, default=5000)
    p.add_argument("--hidden", type=int, default=64)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--gamma", type=float, default=0.98)
    p.add_argument("--lmbda", type=float, default=0.95)
    p.add_argument("--eps-clip", type=float, default=0.1)
    p.add_argument("--k-epoch", type=int, default=3)
    p.add_argument("--t-horizon", type=int, default=200)
    p.add_argument("--actuator-delay", type=float, default=0.012)
    p.add_argument("--report-every", type=int, default=20)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    results = mp.Queue()
    workers = [mp.Process(target=run_seed, args=(s, args, results), name=f"seed-{s}") for s in args.seeds]
    for w in workers:
        w.start()
    scores = {s: [] for s in args.seeds}
    finished = 0
    count = 0
    while finished < len(workers):
        kind, seed, episode, score, loss = results.get()
        if kind == "done":
            finished += 1
            continue
        scores[seed].append(score)
        count += 1
        if count % args.report_every == 0:
            log.info("%d episodes, mean of the last 20 scores: %.1f, loss %.4f", count,
                     np.mean([x for v in scores.values() for x in v[-20:]]), loss)
    for w in workers:
        w.join()
    np.save("scores.npy", np.array([scores[s] for s in args.seeds]))


if __name__ == "__main__":
    main()
