import argparse
import logging
import random
import time

import torch
import torch.multiprocessing as mp

from messages import Payload, RolloutRequest
from policy import TinyPolicy
from rollout_worker import rollout_main

log = logging.getLogger("controller")


class Controller:
    """Hands prompts to the rollout replicas and trains on what comes back."""

    def __init__(self, args, requests, results):
        self.args = args
        self.requests = requests
        self.results = results
        self.samples_on_the_fly = 0
        self.prompt_idx = 0
        self.weight_version = 0
        self.buffer = []
        self.policy = TinyPolicy()
        self.optim = torch.optim.Adam(self.policy.parameters(), lr=args.lr)

    def next_payload(self):
        rng = random.Random(self.prompt_idx)
        payload = Payload(self.prompt_idx, [rng.randint(1, 31) for _ in range(6)], self.weight_version)
        self.prompt_idx += 1
        return payload

    def dispatch(self):
        while self.samples_on_the_fly + self.args.rollout_batch <= self.args.max_on_the_fly:
            payloads = [self.next_payload() for _ in range(self.args.rollout_batch)]
            self.samples_on_the_fly += len(payloads)
            self.requests.put(RolloutRequest(payloads))

    def collect(self):
        result = self.results.get()
        self.samples_on_the_fly -= len(result.completions)
        self.buffer.extend(zip(result.payloads, result.completions, result.rewards))

    def train_step(self):
        batch, self.buffer = self.buffer[: self.args.batch_size], self.buffer[self.args.batch_size :]
        rewards = torch.tensor([r for _, _, r in batch])
        advantages = rewards - rewards.mean()
        loss = torch.zeros(())
        for (payload, completion, _), advantage in zip(batch, advantages):
            tokens = torch.tensor([payload.prompt + completion])
            logits, _ = self.policy(tokens[:, :-1])
            logp = torch.log_softmax(logits, -1).gather(-1, tokens[:, 1:, None]).squeeze(-1)
            loss = loss - advantage * logp[0, len(payload.prompt) - 1 :].mean()
        self.optim.zero_grad()
        (loss / len(batch)).backward()
        self.optim.step()
        self.weight_version += 1
        return rewards.mean().item()

    def fit(self):
        started = time.time()
        while self.weight_version < self.args.steps:
            self.dispatch()
            self.collect()
            if len(self.buffer) >= self.args.batch_size:
                reward = self.train_step()
                log.info(
                    "step %d reward %.3f prompts %d (%.1f samples/s)",
                    self.weight_version, reward, self.prompt_idx,
                    self.weight_version * self.args.batch_size / (time.time() - started),
                )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--rollout-batch", type=int, default=2)
    parser.add_argument("--max-on-the-fly", type=int, default=24)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--max-new-tokens", type=int, default=64)
    parser.add_argument("--engine-latency", type=float, default=0.02)
    parser.add_argument("--steps", type=int, default=100000)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)

    ctx = mp.get_context("fork")
    requests, results = ctx.Queue(), ctx.Queue()
    replicas = []
    for i in range(args.replicas):
        proc = ctx.Process(
            target=rollout_main,
            args=(f"rollout-{i}", requests, results, args.max_new_tokens, args.engine_latency),
            name=f"rollout-{i}",
            daemon=True,
        )
        proc.start()
        replicas.append(proc)
    Controller(args, requests, results).fit()
    for _ in replicas:
        requests.put(None)
    for proc in replicas:
        proc.join()


if __name__ == "__main__":
    main()
