"""Token generation engine used by the trajectory collectors."""
import time

import numpy as np


class GenerationEngine:
    def __init__(self, vocab, hidden, max_model_len, seed):
        self.rng = np.random.default_rng(seed)
        self.embedding = self.rng.normal(size=(vocab, hidden)).astype(np.float32)
        self.cache = np.zeros((max_model_len, hidden), dtype=np.float32)
        self.version = 0

    def refit(self, weights, version):
        self.embedding += 0.01 * weights
        self.version = version

    def generate(self, prompt, new_tokens):
        self.cache[:] = 0.0
        self.cache[: len(prompt)] = self.embedding[prompt]
        tokens = list(prompt)
        for position in range(len(prompt), len(prompt) + new_tokens):
            context = self.cache[:position].mean(axis=0)
            scores = self.embedding @ context + self.rng.gumbel(size=len(self.embedding))
            token = int(scores.argmax())
            tokens.append(token)
            self.cache[position] = self.embedding[token]
        time.sleep(0.08)
        return tokens
