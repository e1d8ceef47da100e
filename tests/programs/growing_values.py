"""A process whose memory grows by what it keeps: each task with its result, 20 of them a second."""

import sys
import time

import torch


class Orchestrator:
    def __init__(self):
        self.tasks = {}
        self.slots = {}

    def add(self, number):
        self.tasks[number] = torch.ones(1 << 16)
        self.slots[number % 8] = torch.ones(8)

    def run(self):
        for number in range(100_000):
            self.add(number)
            time.sleep(0.05)


print("ready", flush=True)
sys.stdout.flush()
Orchestrator().run()
