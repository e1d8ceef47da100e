"""Collect / update training: simulators run while the gate is open, the learner updates while it is closed."""
import argparse
import logging
import time

from learner import Learner
from pool import SimulatorPool

log = logging.getLogger("train")


class AutoScaler:
    """Keeps the pool at the size which the learner can digest."""

    def __init__(self, low_watermark, min_sims, settle_rounds):
        self.low = low_watermark
        self.min_sims = min_sims
        self.settle = settle_rounds
        self.history = []

    def decide(self, frames, update_seconds, pool_size):
        self.history.append(frames / pool_size)
        if len(self.history) < self.settle or pool_size <= self.min_sims:
            return pool_size
        self.history.clear()
        wanted = pool_size - 1 if update_seconds > self.low else pool_size
        return max(self.min_sims, wanted)


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--sims", type=int, default=4)
    p.add_argument("--min-sims", type=int, default=2)
    p.add_argument("--collect-seconds", type=float, default=0.4)
    p.add_argument("--update-steps", type=int, default=40)
    p.add_argument("--settle-rounds", type=int, default=4)
    p.add_argument("--rounds", type=int, default=100000)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    pool = SimulatorPool(args.sims)
    learner = Learner()
    scaler = AutoScaler(low_watermark=0.05, min_sims=args.min_sims, settle_rounds=args.settle_rounds)
    pool.wait_ready()
    log.info("pool of %d simulators is ready", pool.size)

    for rnd in range(args.rounds):
        pool.resume()
        time.sleep(args.collect_seconds)
        pool.pause()
        batch = pool.gather()
        started = time.time()
        loss = learner.update(batch, args.update_steps)
        spent = time.time() - started
        log.info("round %d: %d frames from %d sims, loss %.4f, update %.2fs",
                 rnd, len(batch), pool.size, loss, spent)
        wanted = scaler.decide(len(batch), spent, pool.size)
        if wanted < pool.size:
            log.info("update bound, scaling simulators %d -> %d", pool.size, wanted)
            pool.shrink(wanted)
    pool.close()


if __name__ == "__main__":
    main()
