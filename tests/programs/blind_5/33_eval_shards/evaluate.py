import time

import numpy as np
import torch


class ShardEvaluator:
    def __init__(self, shard, n_examples, classes):
        torch.set_num_threads(1)
        self.shard = shard
        g = torch.Generator().manual_seed(shard)
        self.x = torch.randn(n_examples, 16, generator=g)
        self.w = torch.randn(16, classes, generator=torch.Generator().manual_seed(0))

    @torch.no_grad()
    def predict(self):
        probs = []
        for xb in self.x.split(64):
            probs.append((xb @ self.w).softmax(1).numpy())
            time.sleep(0.01)
        return np.concatenate(probs)


def shard_main(shard, n_examples, classes, results):
    probs = ShardEvaluator(shard, n_examples, classes).predict()
    results.put({"shard": shard, "probs": probs, "top1": probs.argmax(1)})
    print(f"shard {shard}: {len(probs)} examples scored", flush=True)
