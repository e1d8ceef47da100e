import argparse
import logging
import multiprocessing as mp
import queue
import time

import numpy as np

from collector import AsyncTrajectoryCollector

log = logging.getLogger("grpo")


class ReplayBuffer:
    def __init__(self, source):
        self.source = source
        self.groups = []

    def drain(self):
        try:
            while True:
                self.groups.append(self.source.get_nowait())
        except queue.Empty:
            pass

    def sample(self, count):
        if len(self.groups) < count:
            return None
        batch, self.groups = self.groups[:count], self.groups[count:]
        return batch


class GRPOTrainer:
    def __init__(self, args):
        self.args = args
        ctx = mp.get_context("fork")
        self.buffer_queue = ctx.Queue(maxsize=args.collectors * 2)
        self.weight_queues = [ctx.Queue() for _ in range(args.collectors)]
        self.collectors = [AsyncTrajectoryCollector(i, args, self.buffer_queue, q)
                           for i, q in enumerate(self.weight_queues)]
        self.buffer = ReplayBuffer(self.buffer_queue)
        self.rng = np.random.default_rng(0)

    def update(self, batch):
        rewards = np.array([r for group in batch for r in group["rewards"]])
        advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-6)
        gradient = self.rng.normal(size=(self.args.vocab, self.args.hidden)).astype(np.float32)
        return gradient * float(np.abs(advantages).mean()), float(rewards.mean())

    def wait_for_batch(self, step):
        iteration = 0
        while True:
            self.buffer.drain()
            batch = self.buffer.sample(self.args.groups_per_step)
            if batch is not None:
                return batch
            iteration += 1
            if iteration % 20 == 0:
                log.info("Wait iteration %d: buffer_size=%d, step %d ready=False", iteration, len(self.buffer.groups), step)
            time.sleep(0.1)

    def train(self):
        for worker in self.collectors:
            worker.start()
        for step in range(self.args.steps):
            batch = self.wait_for_batch(step)
            weights, reward = self.update(batch)
            log.info("step %d: mean reward %.4f", step, reward)
            for q in self.weight_queues:
                q.put((step + 1, weights))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--collectors", type=int, default=2)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--groups-per-step", type=int, default=4)
    parser.add_argument("--group-size", type=int, default=4)
    parser.add_argument("--vocab", type=int, default=2000)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--new-tokens", type=int, default=32)
    parser.add_argument("--max-model-len", type=int, default=128)
    parser.add_argument("--retries", type=int, default=3)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    GRPOTrainer(args).train()


if __name__ == "__main__":
    main()
