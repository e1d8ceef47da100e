"""Rollout engine: generates with a copy of the policy; gives its memory back while the trainer works."""
import logging
import os
import time

import torch

from policy import Policy, reward


class RolloutEngine:
    def __init__(self, index, args):
        self.index = index
        self.args = args
        self.log = logging.getLogger(f"engine-{index}")
        self.policy = None
        self.cache = None
        self.rng = torch.Generator().manual_seed(50 + index)

    def wake_up(self, weights_path):
        self.policy = Policy(self.args.vocab, self.args.width)
        self.policy.load_state_dict(torch.load(weights_path, weights_only=True))
        # room for the states of all sequences, taken at once
        self.cache = torch.ones(self.args.cache_mb * 262144)

    def sleep(self):
        self.policy = None
        self.cache = None

    @torch.inference_mode()
    def generate(self, count):
        tokens = torch.randint(self.args.vocab, (count, 1), generator=self.rng)
        slots = self.cache.view(-1, self.args.width)
        state = None
        for position in range(self.args.length):
            logits, state = self.policy.step(tokens[:, -1], state)
            slots[position * count:(position + 1) * count] = state[0]
            choice = torch.multinomial(torch.softmax(logits, -1), 1, generator=self.rng)
            tokens = torch.cat([tokens, choice], 1)
            time.sleep(self.args.token_pause)
        return tokens, reward(tokens)


def engine_main(index, conn, args):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    engine = RolloutEngine(index, args)
    engine.log.info("pid %d", os.getpid())
    while True:
        command, value = conn.recv()
        if command == "wake_up":
            conn.send(engine.wake_up(value))
        elif command == "generate":
            tokens, scores = engine.generate(value)
            conn.send((tokens.numpy(), scores.numpy()))
        elif command == "sleep":
            conn.send(engine.sleep())
        elif command == "exit":
            return
