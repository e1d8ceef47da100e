"""Distributed agent: actors insert into the replay service, the learner samples from it."""
import argparse
import logging
import multiprocessing as mp
import time

import numpy as np

from table import ReplayManager

log = logging.getLogger("agent")


def actor(idx, table, stop):
    rng = np.random.default_rng(idx)
    state = rng.standard_normal(24).astype(np.float32)
    while not stop.is_set():
        action = rng.integers(4)
        nxt = 0.95 * state + 0.1 * rng.standard_normal(24).astype(np.float32)
        table.insert((state, int(action), float(nxt.sum()), nxt))
        state = nxt
        time.sleep(0.002)


class Learner:
    def __init__(self, step_time):
        self.w = np.zeros((24, 4), np.float32)
        self.step_time = step_time

    def step(self, batch):
        s = np.stack([b[0] for b in batch])
        a = np.array([b[1] for b in batch])
        r = np.array([b[2] for b in batch], np.float32)
        s2 = np.stack([b[3] for b in batch])
        target = 0.05 * r + 0.95 * (s2 @ self.w).max(1)
        rows = np.arange(len(a))
        td = target - (s @ self.w)[rows, a]
        for k in range(4):
            sel = a == k
            self.w[:, k] += 1e-3 * (s[sel] * td[sel, None]).mean(0) if sel.any() else 0
        time.sleep(self.step_time)
        return float((td**2).mean())


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--actors", type=int, default=3)
    p.add_argument("--batch-size", type=int, default=64)
    p.add_argument("--samples-per-insert", type=float, default=16.0)
    p.add_argument("--min-size", type=int, default=200)
    p.add_argument("--error-buffer", type=float, default=400.0)
    p.add_argument("--step-time", type=float, default=0.15)
    p.add_argument("--seconds", type=float, default=105)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")

    manager = ReplayManager()
    manager.start()
    table = manager.table(20000, args.samples_per_insert, args.min_size, args.error_buffer)
    stop = mp.Event()
    actors = [mp.Process(target=actor, args=(i, table, stop), name=f"actor-{i}") for i in range(args.actors)]
    for a in actors:
        a.start()
    learner, steps = Learner(args.step_time), 0
    end = time.time() + args.seconds
    while time.time() < end:
        loss = learner.step(table.sample(args.batch_size))
        steps += 1
        if steps % 50 == 0:
            log.info("step %d loss %.4f %s", steps, loss, table.info())
    stop.set()
    table.close()
    for a in actors:
        a.join()
    log.info("finished after %d steps, %s", steps, table.info())
    manager.shutdown()


if __name__ == "__main__":
    main()
