"""One rank of the tuning benchmark (regression head on synthetic sensor windows)."""
import argparse
import logging
import os
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn

from callbacks import Control, StopAfterSeconds, Throughput

log = logging.getLogger("sft")


def parse_args():
    ap = argparse.ArgumentParser()
    ap.add_argument("--stop-after-seconds", type=float, default=5.0)
    ap.add_argument("--max-steps", type=int, default=100000)
    ap.add_argument("--batch-size", type=int, default=32)
    ap.add_argument("--windows", type=int, default=900, help="windows in the smallest shard")
    ap.add_argument("--width", type=int, default=64)
    return ap.parse_args()


class Shard:
    """Sensor recordings, cut into windows and smoothed on load."""

    def __init__(self, rank, windows, length=256):
        rng = np.random.default_rng(rank)
        count = windows * (1 + 2 * rank)       # the later plants have more sensors
        kernel = np.hanning(31)
        kernel /= kernel.sum()
        xs = np.empty((count, length), dtype=np.float32)
        for i in range(count):
            raw = np.cumsum(rng.normal(size=length))
            for _ in range(6):
                raw = np.convolve(raw, kernel, mode="same")
            xs[i] = (raw - raw.mean()) / (raw.std() + 1e-6)
            if i % 300 == 299:
                time.sleep(0.1)                # archive throttles us
        self.x = torch.from_numpy(xs)
        self.y = self.x[:, -16:].mean(1, keepdim=True)
        self.gen = torch.Generator().manual_seed(rank)

    def batch(self, n):
        idx = torch.randint(0, len(self.x), (n,), generator=self.gen)
        return self.x[idx, :-16], self.y[idx]


class Trainer:
    def __init__(self, args, shard, callbacks):
        self.args, self.shard, self.callbacks = args, shard, callbacks
        self.control = Control()
        torch.manual_seed(0)
        w = args.width
        self.model = nn.Sequential(nn.Linear(240, w), nn.ReLU(), nn.Linear(w, w), nn.ReLU(), nn.Linear(w, 1))
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.02)

    def _call(self, hook, state):
        for cb in self.callbacks:
            getattr(cb, hook)(state, self.control)

    def train(self):
        state = {"step": 0, "loss": float("nan"), "batch": self.args.batch_size}
        self._call("on_train_begin", state)
        for step in range(1, self.args.max_steps + 1):
            x, y = self.shard.batch(self.args.batch_size)
            loss = nn.functional.mse_loss(self.model(x), y)
            self.opt.zero_grad()
            loss.backward()
            for p in self.model.parameters():
                dist.all_reduce(p.grad)
                p.grad /= dist.get_world_size()
            self.opt.step()
            state.update(step=step, loss=loss.item())
            self._call("on_step_end", state)
            if self.control.should_stop:
                break
            time.sleep(0.02)
        return state

    @torch.no_grad()
    def evaluate(self):
        x, y = self.shard.batch(512)
        mine = nn.functional.mse_loss(self.model(x), y).reshape(1)
        parts = [torch.zeros(1) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, mine)
        return torch.cat(parts).mean().item()


def main():
    args = parse_args()
    rank = int(os.environ["RANK"])
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [rank {rank}] %(name)s: %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    shard = Shard(rank, args.windows)
    log.info("shard ready: %d windows", len(shard.x))
    trainer = Trainer(args, shard, [Throughput(), StopAfterSeconds(args.stop_after_seconds)])
    state = trainer.train()
    score = trainer.evaluate()
    log.info("finished after %d steps, validation mse %.4f", state["step"], score)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
