import argparse
import logging
import time

import torch
import torch.multiprocessing as mp

from generator import generator_main
from model import Policy
from weight_store import WeightStore

log = logging.getLogger("trainer")


class Trainer:
    def __init__(self, args, weights, rollouts):
        self.args, self.weights, self.rollouts = args, weights, rollouts
        self.policy = Policy()
        self.optim = torch.optim.Adam(self.policy.parameters(), lr=args.lr)

    def update(self, batch):
        obs, actions, rewards = (torch.from_numpy(part) for part in batch)
        advantages = rewards - rewards.mean()
        dist_ = self.policy(obs[:-1])
        loss = -(dist_.log_prob(actions[1:]) * advantages[1:]).mean() - 0.01 * dist_.entropy().mean()
        self.optim.zero_grad()
        loss.backward()
        self.optim.step()
        return loss.item(), rewards.mean().item()

    def fit(self):
        self.weights.publish(self.policy.state_dict(), 0)
        for step in range(1, self.args.steps):
            began = time.time()
            version, batch = self.rollouts.get()
            loss, reward = self.update(batch)
            self.weights.publish(self.policy.state_dict(), step)
            if step % 20 == 0:
                log.info("step %d loss %.3f reward %.3f lag %d", step, loss, reward, step - 1 - version)
            time.sleep(max(0.0, self.args.step_interval - (time.time() - began)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--generators", type=int, default=2)
    parser.add_argument("--horizon", type=int, default=64)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--steps", type=int, default=1000000)
    parser.add_argument("--step-interval", type=float, default=0.4, help="at most one update per interval")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)

    ctx = mp.get_context("fork")
    rollouts = ctx.Queue(maxsize=4)
    weights = WeightStore("127.0.0.1", 0, server=True)
    for i in range(args.generators):
        ctx.Process(
            target=generator_main, args=(i, weights.port, rollouts, args.horizon), name=f"generator-{i}", daemon=True
        ).start()
    Trainer(args, weights, rollouts).fit()


if __name__ == "__main__":
    main()
