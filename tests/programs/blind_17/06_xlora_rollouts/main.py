"""Rollout service of an X-LoRA policy: prompts come from one process, rewards are given by another."""
import argparse
import logging
import multiprocessing as mp
import os
import queue
import threading
import time

import torch

from xlora import BaseModel, XLoraModel


def setup(name):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    return logging.getLogger(name)


def prompt_source(args, prompts, stop):
    log = setup("prompts")
    generator = torch.Generator().manual_seed(args.seed)
    count = 0
    while not stop.is_set():
        batch = torch.randint(0, 512, (args.batch_size, args.prompt_length), generator=generator)
        try:
            prompts.put((count, batch.numpy()), timeout=5)
        except queue.Full:
            log.info("generator is busy")
            continue
        count += 1
        time.sleep(args.prompt_interval)


def generator_worker(args, prompts, rollouts, stop):
    log = setup("generator")
    torch.manual_seed(args.seed)
    policy = XLoraModel(BaseModel()).eval()
    done, tokens_out, started = 0, 0, time.monotonic()
    while not stop.is_set():
        try:
            index, batch = prompts.get(timeout=1)
        except queue.Empty:
            continue
        began = time.monotonic()
        completions = policy.generate(torch.from_numpy(batch), args.max_new_tokens, args.temperature)
        rollouts.put((index, completions.numpy()))
        done += 1
        tokens_out += completions.shape[0] * args.max_new_tokens
        if done % 5 == 0:
            log.info("%d batches, %.0f tokens/s, last batch %.2f s", done,
                     tokens_out / (time.monotonic() - started), time.monotonic() - began)


class RewardModel:
    """Rewards completions that repeat few tokens; keeps a running mean for the advantage."""

    def __init__(self, momentum=0.95):
        self.momentum = momentum
        self.baseline = 0.0

    def __call__(self, completions):
        rewards = torch.tensor([len(set(row.tolist())) / len(row) for row in completions])
        self.baseline = self.momentum * self.baseline + (1 - self.momentum) * rewards.mean().item()
        return rewards - self.baseline


def scorer(args, rollouts, stop):
    log = setup("scorer")
    reward_model = RewardModel()
    scored = 0
    while not stop.is_set():
        try:
            index, completions = rollouts.get(timeout=1)
        except queue.Empty:
            continue
        advantages = reward_model(completions)
        scored += len(completions)
        if index % 10 == 0:
            log.info("batch %d: %d rollouts scored, baseline %.3f, advantage std %.4f", index, scored,
                     reward_model.baseline, advantages.std().item())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--prompt-length", type=int, default=72)
    parser.add_argument("--max-new-tokens", type=int, default=24)
    parser.add_argument("--prompt-interval", type=float, default=0.8)
    parser.add_argument("--temperature", type=float, default=0.9)
    parser.add_argument("--minutes", type=float, default=1.9)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    log = setup("main")
    ctx = mp.get_context("spawn")
    prompts, rollouts, stop = ctx.Queue(maxsize=4), ctx.Queue(maxsize=16), ctx.Event()
    processes = [
        ctx.Process(target=prompt_source, args=(args, prompts, stop), name="prompts", daemon=True),
        ctx.Process(target=generator_worker, args=(args, prompts, rollouts, stop), name="generator", daemon=True),
        ctx.Process(target=scorer, args=(args, rollouts, stop), name="scorer", daemon=True),
    ]
    for p in processes:
        p.start()
    log.info("started %s", ", ".join(f"{p.name} ({p.pid})" for p in processes))
    deadline = time.monotonic() + args.minutes * 60
    while time.monotonic() < deadline and all(p.is_alive() for p in processes):
        time.sleep(0.5)
    stop.set()
    for p in processes:
        p.join(timeout=5)
    for p in processes:
        if p.is_alive():
            p.kill()
    log.info("stopped")


if __name__ == "__main__":
    main()
