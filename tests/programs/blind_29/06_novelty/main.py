import argparse
import collections
import logging
import multiprocessing as mp

import numpy as np
import torch

from explorer import Explorer

log = logging.getLogger("learner")


class Learner:
    def __init__(self, lr, window):
        self.policy = torch.nn.Linear(8, 4, bias=False)
        torch.nn.init.zeros_(self.policy.weight)
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=lr)
        self.baseline = collections.deque(maxlen=window)

    def update(self, trajectory):
        data = torch.from_numpy(trajectory)
        obs, actions, rewards = data[:, :8], data[:, 8:12], data[:, 12]
        self.baseline.append(rewards.sum().item())
        advantage = (rewards.sum() - np.mean(self.baseline)) / (np.std(self.baseline) + 1.0)
        loss = (advantage * (torch.tanh(self.policy(obs)) - actions).square().sum(-1)).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def main():
    parser = argparse.ArgumentParser(description="exploration with a cell archive")
    parser.add_argument("--explorers", type=int, default=2)
    parser.add_argument("--candidates", type=int, default=16)
    parser.add_argument("--horizon", type=int, default=100)
    parser.add_argument("--resolution", type=float, default=20.0, help="cells per unit")
    parser.add_argument("--max-cells", type=int, default=5000)
    parser.add_argument("--episodes", type=int, default=1000000)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)

    episodes = mp.Queue(maxsize=16)
    weights = mp.Array("d", 32)
    learner = Learner(args.lr, window=200)
    for index in range(args.explorers):
        Explorer(index, args, episodes, weights).start()
    for episode in range(1, args.episodes + 1):
        loss = learner.update(episodes.get())
        with weights.get_lock():
            weights[:] = learner.policy.weight.detach().double().flatten().tolist()
        if episode % 25 == 0:
            log.info("episode %d loss %.4f mean return %.1f", episode, loss, np.mean(learner.baseline))


if __name__ == "__main__":
    main()
