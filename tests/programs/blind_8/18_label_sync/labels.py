import logging
import time

import numpy as np
import torch

log = logging.getLogger("labels")


class LabelClient:
    def __init__(self, min_gap):
        self.min_gap = min_gap
        self.last_call = None

    def fetch(self, page):
        if self.last_call is not None:
            wait = self.min_gap - (time.time() - self.last_call)
            if wait > 0:
                log.info("quota: next call in %.0fs", wait)
                time.sleep(wait)
        self.last_call = time.time()
        return np.random.default_rng(page).standard_normal((1800, 64)).astype(np.float32)


def score_page(rows):
    torch.set_num_threads(1)
    x = torch.from_numpy(np.ascontiguousarray(rows))
    for _ in range(200):
        x = torch.tanh(x @ x.T @ x * 1e-3 + x)
    return x.abs().mean().item()
