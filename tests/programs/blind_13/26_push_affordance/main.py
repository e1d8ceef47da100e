"""Collect pushes in simulation and train a position and a direction network, each in its own process."""
import argparse
import logging
import multiprocessing as mp
import time

import numpy as np

from learner import learner_process
from sim import PushSim, ReplayBuffer

log = logging.getLogger("collect")


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=74)
    p.add_argument("--epoch-seconds", type=float, default=1.25)
    p.add_argument("--steps-per-epoch", type=int, default=40)
    p.add_argument("--position-start-epoch", type=int, default=4)
    p.add_argument("--direction-start-epoch", type=int, default=40)
    p.add_argument("--train-batches", type=int, default=8)
    p.add_argument("--batch", type=int, default=64)
    return p.parse_args()


class Learner:
    def __init__(self, ctx, name, start_epoch, outputs):
        self.name = name
        self.start_epoch = start_epoch
        self.buffer = ReplayBuffer()
        self.batches, self.losses = ctx.Queue(), ctx.Queue()
        self.process = ctx.Process(target=learner_process, args=(name, outputs, self.batches, self.losses), name=name)
        self.process.start()

    def submit(self, args, rng):
        self.batches.put([self.buffer.sample(args.batch, rng) for _ in range(args.train_batches)])

    def close(self):
        self.batches.put(None)
        self.process.join()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    rng = np.random.default_rng(0)
    ctx = mp.get_context("fork")
    sim = PushSim(rng)
    position = Learner(ctx, "position", args.position_start_epoch, 1)
    direction = Learner(ctx, "direction", args.direction_start_epoch, 2)
    next_epoch = time.monotonic()
    for epoch in range(args.epochs):
        for _ in range(args.steps_per_epoch):
            image, position_label, direction_label = sim.push()
            position.buffer.add(image, position_label)
            if position_label[0] > 0:
                direction.buffer.add(image, direction_label)
        active = [l for l in (position, direction) if epoch >= l.start_epoch]
        for learner in active:
            learner.submit(args, rng)
        report = ", ".join(f"{l.name} loss {l.losses.get():.4f}" for l in active) or "warm-up"
        if epoch % 4 == 0:
            log.info("epoch %d: %s (%d / %d samples)", epoch, report, len(position.buffer), len(direction.buffer))
        next_epoch += args.epoch_seconds
        time.sleep(max(0.0, next_epoch - time.monotonic()))
    position.close()
    direction.close()
    log.info("done")


if __name__ == "__main__":
    main()
