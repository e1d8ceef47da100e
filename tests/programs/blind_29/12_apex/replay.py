"""Replay process: takes transitions from the actors, hands batches to the learner."""
import logging
import queue

import numpy as np
import torch

from memory import PrioritizedMemory

log = logging.getLogger("replay")


class ReplayServer:
    def __init__(self, args, experience, learner):
        self.args = args
        self.experience, self.learner = experience, learner
        self.memory = PrioritizedMemory(args.capacity)

    def take_experience(self, limit):
        for _ in range(limit):
            try:
                transitions, errors = self.experience.get_nowait()
            except queue.Empty:
                return
            for item, error in zip(transitions, errors):
                self.memory.add(item, error)

    def answer(self):
        kind, payload = self.learner.recv()
        if kind == "update":
            self.memory.update(*payload)
            return
        indices, weights, items = self.memory.sample(payload)
        columns = [torch.from_numpy(np.stack(c)) for c in zip(*items)]
        self.learner.send((indices, torch.tensor(weights), columns, len(self.memory)))

    def run(self):
        while len(self.memory) < self.args.warmup:
            self.take_experience(50)
        log.info("memory holds %d transitions, learner may start", len(self.memory))
        self.learner.send("ready")
        while True:
            self.take_experience(4)
            if self.learner.poll(0.002):
                self.answer()


def run_replay(args, experience, learner):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    torch.set_num_threads(1)
    ReplayServer(args, experience, learner).run()
