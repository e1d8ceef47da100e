import logging
import time

import torch

log = logging.getLogger("actor")


def act(rank, out, episodes):
    """Plays quickly; is held back by the learner through the bounded queue."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    gen = torch.Generator().manual_seed(rank)
    for n in range(episodes):
        out.put((rank, n, torch.randn(40, 256, 16, generator=gen).numpy()))
    out.put((rank, None, None))
    log.info("actor %d played %d episodes", rank, episodes)


class ReplayBuffer:
    def __init__(self, capacity):
        self.capacity = capacity
        self.items = []
        self.seen = 0

    def add(self, episode):
        if len(self.items) < self.capacity:
            self.items.append(episode)
        else:
            self.items[self.seen % self.capacity] = episode
        self.seen += 1

    @property
    def mib(self):
        return sum(e.nbytes for e in self.items) / 2**20

    def consolidate(self, seconds):
        """Priorities are recomputed for the whole buffer between two bursts."""
        end = time.monotonic() + seconds
        total = 0.0
        while time.monotonic() < end:
            e = self.items[int(total * 1000) % len(self.items)]
            total += abs(float(e[0].mean()))
            time.sleep(0.05)
        return total
