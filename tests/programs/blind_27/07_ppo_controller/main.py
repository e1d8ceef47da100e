"""PPO: rollout, log-probs and actor update on a model-parallel worker group."""
import argparse
import logging
import time

import numpy as np
import torch
import torch.nn as nn

from protocol import DataProto
from worker_group import MegatronWorkerGroup

logging.basicConfig(level=logging.INFO, format="%(asctime)s [%(processName)s] %(message)s")
logger = logging.getLogger("ppo")


class ActorWorker:
    """Holds the shard of the actor of its model-parallel rank."""

    def __init__(self, rank, mp_size):
        torch.manual_seed(rank % mp_size)
        torch.set_num_threads(1)
        self.shard = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 1))

    @torch.no_grad()
    def compute_log_prob(self, data):
        features = data.batch["hidden"].float().mean(1)
        return self.shard(features).squeeze(1)

    def update_actor(self, data):
        features = data.batch["hidden"].float().mean(1)
        loss = (self.shard(features).squeeze(1) - data.batch["old_log_probs"]).mul(data.batch["advantages"]).mean()
        self.shard.zero_grad()
        loss.backward()
        with torch.no_grad():
            for p in self.shard.parameters():
                p -= 1e-3 * p.grad
        return loss.item()


class RayPPOTrainer:
    def __init__(self, args):
        self.args = args
        self.actor = MegatronWorkerGroup(ActorWorker, args.dp_size, args.mp_size)
        torch.manual_seed(args.seed)
        torch.set_num_threads(1)
        self.rng = np.random.default_rng(args.seed)
        self.vocab = np.array([f"tok{i:05d}" for i in range(4096)], dtype=object)

    def rollout(self):
        n, length = self.args.train_batch_size, self.args.response_length
        batch = {"responses": torch.randint(0, 4096, (n, length)), "hidden": torch.randn(n, length, 64).half()}
        ids = batch["responses"].numpy()
        objects = {"raw_tokens": np.empty(n, dtype=object), "turns": np.empty(n, dtype=object)}
        for i in range(n):
            objects["raw_tokens"][i] = list(self.vocab[ids[i]])
            objects["turns"][i] = [{"role": "tool", "span": (j, j + 2), "score": float(j)} for j in range(length)]
        return DataProto(batch, objects, {"temperature": 1.0})

    def fit(self):
        for step in range(self.args.total_steps):
            timing, tic = {}, time.time()
            data = self.rollout()
            timing["gen"] = time.time() - tic
            tic = time.time()
            data.batch["old_log_probs"] = torch.cat(self.actor.execute_all("compute_log_prob", data))
            timing["old_log_prob"] = time.time() - tic
            tic = time.time()
            data.batch["advantages"] = torch.randn(len(data))
            losses = self.actor.execute_all("update_actor", data)
            timing["update_actor"] = time.time() - tic
            logger.info("step:%d - actor/loss:%.4f - %s", step, sum(losses) / len(losses),
                        " - ".join(f"timing_s/{k}:{v:.2f}" for k, v in timing.items()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--dp-size", type=int, default=1)
    parser.add_argument("--mp-size", type=int, default=4)
    parser.add_argument("--train-batch-size", type=int, default=64)
    parser.add_argument("--response-length", type=int, default=1024)
    parser.add_argument("--total-steps", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    RayPPOTrainer(parser.parse_args()).fit()
