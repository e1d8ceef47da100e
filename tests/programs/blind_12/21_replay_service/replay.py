"""Replay service: receives transitions from the actors and serves batches to the learner."""
import logging
import random
import time
from collections import deque

import numpy as np

from actor import rollout

log = logging.getLogger("replay")


class SimpleReplayBuffer:
    def __init__(self, capacity, random_seed=None):
        self._capacity = int(capacity)
        self._random = random.Random(random_seed)
        self.clear()

    def clear(self):
        self._storage = deque(maxlen=self._capacity)

    def add(self, transitions):
        self._storage.extend(transitions)

    def sample(self, batch_size):
        items = self._random.sample(range(len(self._storage)), batch_size)
        batch = [self._storage[i] for i in items]
        obs, act, rew, nxt, done = zip(*batch)
        return (np.asarray(obs, np.float32), np.asarray(act, np.int64), np.asarray(rew, np.float32),
                np.asarray(nxt, np.float32), np.asarray(done, np.float32))

    def __len__(self):
        return len(self._storage)


def replay_main(transitions, batches, args):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    buffer = SimpleReplayBuffer(args.capacity, random_seed=args.seed)
    buffer.add(rollout(random.Random(args.seed), args.demonstrations))
    log.info("loaded %d demonstrations", len(buffer))
    served, last, busy = 0, time.monotonic(), 0.0
    while True:
        while not transitions.empty():
            buffer.add(transitions.get())
        if len(buffer) < args.warmup:
            time.sleep(0.01)
            continue
        t0 = time.monotonic()
        batch = buffer.sample(args.batch_size)
        busy += time.monotonic() - t0
        batches.put(batch)
        served += 1
        if time.monotonic() - last > 5:
            log.info("size %d served %.1f batches/s sampling %.1f ms", len(buffer),
                     served / (time.monotonic() - last), 1e3 * busy / served)
            served, busy, last = 0, 0.0, time.monotonic()
