"""One tensor parallel worker: loads its half of the weights and computes its share of every step."""
import logging
import time

import numpy as np

log = logging.getLogger("worker")


class ShardedMLP:
    def __init__(self, rank, ranks, width, layers):
        self.rank, self.ranks, self.width, self.layers = rank, ranks, width, layers
        self.weights = []

    def load_model(self, shards, shard_seconds):
        for shard in range(shards):
            began = time.monotonic()
            rng = np.random.default_rng(shard * self.ranks + self.rank)
            while time.monotonic() - began < shard_seconds:
                w = rng.normal(size=(self.width, self.width // self.ranks)).astype(np.float32)
                scale = np.abs(w).max(0) / 127
                w = np.round(w / scale).astype(np.int8)
                time.sleep(0.05)
            if len(self.weights) < self.layers:
                self.weights.append((w, (scale / self.width ** 0.5).astype(np.float32)))
            log.info("rank %d: loading checkpoint shards: %d/%d", self.rank, shard + 1, shards)
        return "ready"

    def execute(self, layer, x):
        w, scale = self.weights[layer]
        time.sleep(0.01)
        return np.maximum(x @ (w.astype(np.float32) * scale), 0)


def worker_main(rank, ranks, mq, args):
    logging.basicConfig(level=logging.INFO, format=f"(Worker_TP{rank}) %(levelname)s %(asctime)s [%(name)s] %(message)s")
    model = ShardedMLP(rank, ranks, args.width, args.layers)
    while True:
        method, params = mq.dequeue(rank)
        if method == "shutdown":
            break
        mq.reply(rank, getattr(model, method)(*params))
