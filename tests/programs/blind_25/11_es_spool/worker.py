import logging
import random
import time

import torch

from spool import Spool
from task import PoleTask

log = logging.getLogger("worker")


class Poller:
    """Looks for tasks; waits longer and longer on an empty spool to spare the shared file system."""

    def __init__(self, spool, first=0.1, factor=2.0, longest=15.0):
        self.spool = spool
        self.first, self.factor, self.longest = first, factor, longest
        self.tries = 0

    def next_task(self):
        while True:
            item = self.spool.claim()
            if item is not None:
                return item
            pause = min(self.first * self.factor ** self.tries, self.longest)
            self.tries += 1
            time.sleep(pause * random.uniform(0.9, 1.1))


def main(wid, root, args):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s-%(process)d %(message)s")
    torch.set_num_threads(1)
    random.seed(wid)
    poller = Poller(Spool(root), longest=args.max_pause)
    task = PoleTask(args.episodes, args.horizon)
    done = 0
    while True:
        name, (theta, seed, sigma) = poller.next_task()
        result = task.evaluate(theta, seed, sigma)
        poller.spool.finish(name, result)
        done += 1
        if done % 20 == 0:
            log.info("worker %d evaluated %d candidates", wid, done)
