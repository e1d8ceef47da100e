import argparse
import logging
import multiprocessing
import time

import torch

from engine import EngineClient
from policy import TinyLM
from rewards import repetition_reward

log = logging.getLogger("trainer")


class GRPOTrainer:
    def __init__(self, args):
        self.args = args
        torch.manual_seed(args.seed)
        torch.set_num_threads(1)
        self.policy = TinyLM()
        self.optimizer = torch.optim.AdamW(self.policy.parameters(), lr=args.lr)
        self.llm = EngineClient(args.token_time)
        self.pool = multiprocessing.get_context("spawn").Pool(2)

    def rollout(self):
        began = time.time()
        self.llm.call("wake_up")
        self.llm.call("load_weights", {k: v.detach().clone() for k, v in self.policy.state_dict().items()})
        prompts = torch.randint(256, (self.args.prompts, 4)).repeat_interleave(self.args.num_generations, 0)
        completions = self.llm.call("generate", prompts, self.args.max_tokens)
        self.llm.call("sleep")
        log.info("%d completions in %.1f s", len(completions), time.time() - began)
        return completions

    def advantages(self, completions):
        rewards = torch.tensor(self.pool.map(repetition_reward, completions.tolist()))
        grouped = rewards.view(-1, self.args.num_generations)
        adv = (grouped - grouped.mean(1, keepdim=True)) / (grouped.std(1, keepdim=True) + 1e-4)
        return adv.flatten(), rewards.mean().item()

    def optimize(self, completions, advantages):
        began = time.time()
        updates = 0
        with torch.no_grad():
            old = self.policy.log_probs(completions)
        while time.time() - began < self.args.optimize_seconds:
            ratio = torch.exp(self.policy.log_probs(completions) - old)
            loss = -torch.min(ratio * advantages[:, None], ratio.clamp(0.8, 1.2) * advantages[:, None]).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            updates += 1
        return updates

    def train(self):
        began = time.time()
        for step in range(self.args.steps):
            completions = self.rollout()
            adv, reward = self.advantages(completions)
            updates = self.optimize(completions, adv)
            log.info("step %d: reward %.3f, %d updates", step, reward, updates)
            if time.time() - began > self.args.max_seconds:
                break
        self.pool.close()
        self.pool.join()
        self.llm.shutdown()


def parse_args():
    p = argparse.ArgumentParser(description="GRPO with the generation engine on the trainer's device")
    p.add_argument("--prompts", type=int, default=4)
    p.add_argument("--num-generations", type=int, default=8)
    p.add_argument("--max-tokens", type=int, default=160)
    p.add_argument("--token-time", type=float, default=0.06)
    p.add_argument("--optimize-seconds", type=float, default=8.0)
    p.add_argument("--steps", type=int, default=40)
    p.add_argument("--max-seconds", type=float, default=88)
    p.add_argument("--lr", type=float, default=3e-4)
    p.add_argument("--seed", type=int, default=4)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    GRPOTrainer(args).train()


if __name__ == "__main__":
    main()
