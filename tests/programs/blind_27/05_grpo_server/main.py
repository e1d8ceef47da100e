"""Multi-turn GRPO with generation on a separate server."""
import argparse
import json
import logging
import multiprocessing as mp
import random
import time
import urllib.request

import torch
import torch.nn as nn
import torch.nn.functional as F

from serve import serve

logging.basicConfig(level=logging.INFO, format="%(asctime)s [%(processName)s] %(message)s")
logger = logging.getLogger("grpo")


class GenerationClient:
    def __init__(self, port):
        self.base_url = f"http://127.0.0.1:{port}"

    def generate(self, prompts, max_tokens):
        body = json.dumps({"prompts": prompts, "max_tokens": max_tokens}).encode()
        request = urllib.request.Request(f"{self.base_url}/generate/", data=body, headers={"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as response:
            return json.load(response)["completion_ids"]


class Conversation:
    """A tool-use episode; the transcript is the prompt of the next turn."""

    def __init__(self, rng):
        self.rng = rng
        self.reset()

    def reset(self):
        self.ids = [self.rng.randrange(1024) for _ in range(self.rng.randint(20, 60))]
        self.max_turns = self.rng.choice([4, 8, 16, 48])
        self.turn = 0

    def add(self, completion):
        tool_output = [self.rng.randrange(1024) for _ in range(self.rng.randint(2, 16))]
        self.ids = self.ids + completion + tool_output
        self.turn += 1
        if self.turn >= self.max_turns:
            self.reset()


class GRPOTrainer:
    def __init__(self, args, client):
        self.args, self.client = args, client
        torch.manual_seed(args.seed)
        torch.set_num_threads(1)
        rng = random.Random(args.seed)
        self.conversations = [Conversation(rng) for _ in range(args.num_conversations)]
        self.policy = nn.Sequential(nn.Embedding(1024, 128), nn.Linear(128, 512), nn.GELU(), nn.Linear(512, 1024))
        self.optimizer = torch.optim.AdamW(self.policy.parameters(), lr=1e-4)

    def train(self):
        for step in range(self.args.max_steps):
            tic = time.time()
            prompts = [c.ids for c in self.conversations]
            completions = self.client.generate(prompts, self.args.max_completion_length)
            time.sleep(self.args.tool_latency)  # all tool calls of a turn run at once in the sandbox
            for conversation, completion in zip(self.conversations, completions):
                conversation.add(completion)
            ids = torch.tensor(completions)
            loss = F.cross_entropy(self.policy(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            logger.info("step %d loss %.4f mean prompt length %.0f (%.2f s)", step, loss.item(),
                        sum(map(len, prompts)) / len(prompts), time.time() - tic)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--data-parallel-size", type=int, default=2)
    parser.add_argument("--max-model-len", type=int, default=320)
    parser.add_argument("--num-conversations", type=int, default=12)
    parser.add_argument("--max-completion-length", type=int, default=16)
    parser.add_argument("--tool-latency", type=float, default=0.2)
    parser.add_argument("--max-steps", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    ports = mp.get_context("fork").Queue()
    server = mp.get_context("fork").Process(target=serve, name="server", args=(args.data_parallel_size, args.max_model_len, ports))
    server.start()
    trainer = GRPOTrainer(args, GenerationClient(ports.get()))
    trainer.train()
    server.terminate()
