"""GRPO on short math problems."""
import argparse
import logging
import time

import torch
import torch.nn as nn

from problems import build_dataset
from reward_loop import RewardLoopManager

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
logger = logging.getLogger("grpo")


class Policy(nn.Module):
    def __init__(self, dim=256):
        super().__init__()
        self.embed = nn.EmbeddingBag(256, dim)
        self.body = nn.Sequential(nn.Linear(dim, 1024), nn.GELU(), nn.Linear(1024, 1024), nn.GELU(), nn.Linear(1024, 4))

    def forward(self, prompts):
        rows = [torch.tensor(list(p.encode())) for p in prompts]
        offsets = torch.tensor([0] + [len(r) for r in rows[:-1]]).cumsum(0)
        return self.body(self.embed(torch.cat(rows), offsets))


class GRPOTrainer:
    def __init__(self, args):
        self.args = args
        torch.manual_seed(args.seed)
        self.data = build_dataset(args.dataset_size, args.seed)
        self.rewards = RewardLoopManager(args.reward_workers)
        torch.set_num_threads(1)
        self.policy = Policy()
        self.optimizer = torch.optim.AdamW(self.policy.parameters(), lr=args.lr)

    def step(self, batch):
        prompts = [p for p, _, _ in batch]
        dist = torch.distributions.Categorical(logits=self.policy(prompts))
        actions = dist.sample((self.args.num_generations,))
        solutions, truths = [], []
        for row in actions.tolist():
            for (_, candidates, truth), choice in zip(batch, row):
                solutions.append("The answer is \\boxed{%s}." % candidates[choice])
                truths.append(truth)
        scores = torch.tensor(self.rewards.compute_rewards(solutions, truths)).view_as(actions)
        advantage = (scores - scores.mean(0)) / (scores.std(0) + 1e-4)
        for _ in range(self.args.ppo_epochs):
            dist = torch.distributions.Categorical(logits=self.policy(prompts))
            loss = -(advantage * dist.log_prob(actions)).mean() - 0.01 * dist.entropy().mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return scores.mean().item()

    def train(self):
        size = self.args.batch_size
        for epoch in range(self.args.epochs):
            for i in range(0, len(self.data), size):
                tic = time.time()
                reward = self.step(self.data[i:i + size])
                logger.info("epoch %d step %d reward %.3f (%.2f s)", epoch, i // size, reward, time.time() - tic)
        self.rewards.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--dataset-size", type=int, default=8000)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--num-generations", type=int, default=16)
    parser.add_argument("--ppo-epochs", type=int, default=4)
    parser.add_argument("--reward-workers", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--lr", type=float, default=2e-4)
    parser.add_argument("--seed", type=int, default=0)
    GRPOTrainer(parser.parse_args()).train()
