import argparse
import logging
import time

import torch
from torch import nn

from deployment import Deployment
from gateway import RewardGateway

log = logging.getLogger("trainer")


class Policy(nn.Module):
    def __init__(self, vocab, dim=96):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.head = nn.Linear(dim, vocab)

    def forward(self, tokens):
        return self.head(self.rnn(self.embed(tokens))[0])

    @torch.no_grad()
    def rollout(self, batch, length):
        tokens = torch.zeros(batch, 1, dtype=torch.long)
        hidden, last = None, tokens
        for _ in range(length):
            out, hidden = self.rnn(self.embed(last), hidden)
            last = torch.multinomial(self.head(out[:, -1]).softmax(-1), 1)
            tokens = torch.cat([tokens, last], 1)
        return tokens


class Trainer:
    def __init__(self, args, gateway):
        self.args, self.gateway = args, gateway
        torch.manual_seed(args.seed)
        self.policy = Policy(args.vocab)
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=3e-4)
        self.baseline = 0.0

    def calibrate(self):
        """Scores of the initial policy give the first baseline."""
        end = time.monotonic() + self.args.calibration
        scores = []
        while time.monotonic() < end:
            tokens = self.policy.rollout(self.args.micro_batch, self.args.length)
            scores += self.gateway.score(tokens.tolist())
        self.baseline = sum(scores) / len(scores)
        log.info("calibrated on %d samples, baseline %.4f", len(scores), self.baseline)

    def step(self):
        loss_sum = reward_sum = 0.0
        self.optimizer.zero_grad()
        for _ in range(self.args.accumulate):
            tokens = self.policy.rollout(self.args.micro_batch, self.args.length)
            rewards = torch.tensor(self.gateway.score(tokens.tolist()))
            logp = torch.log_softmax(self.policy(tokens[:, :-1]), -1).gather(-1, tokens[:, 1:, None]).squeeze(-1)
            loss = -((rewards - self.baseline)[:, None] * logp).mean() / self.args.accumulate
            loss.backward()
            loss_sum += loss.item()
            reward_sum += rewards.mean().item() / self.args.accumulate
        self.optimizer.step()
        self.baseline = 0.95 * self.baseline + 0.05 * reward_sum
        return loss_sum, reward_sum


def parse_args():
    p = argparse.ArgumentParser(description="policy gradient with a pool of reward model replicas")
    p.add_argument("--replicas", type=int, default=2)
    p.add_argument("--calibration-replicas", type=int, default=3)
    p.add_argument("--calibration", type=float, default=1.0)
    p.add_argument("--vocab", type=int, default=200)
    p.add_argument("--length", type=int, default=32)
    p.add_argument("--micro-batch", type=int, default=16)
    p.add_argument("--accumulate", type=int, default=4)
    p.add_argument("--steps", type=int, default=100000)
    p.add_argument("--log-every", type=int, default=5)
    p.add_argument("--seed", type=int, default=0)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    deployment = Deployment(args.vocab)
    gateway = RewardGateway(deployment.start(args.calibration_replicas))
    trainer = Trainer(args, gateway)
    trainer.calibrate()
    deployment.scale_to(args.replicas)
    last = time.monotonic()
    for step in range(1, args.steps + 1):
        loss, reward = trainer.step()
        if step % args.log_every == 0:
            now = time.monotonic()
            log.info("step %d loss %.5f reward %.4f (%.2f s/step)", step, loss, reward, (now - last) / args.log_every)
            last = now


if __name__ == "__main__":
    main()
