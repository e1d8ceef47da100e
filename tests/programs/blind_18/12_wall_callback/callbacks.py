"""Callbacks run by the time integrator after each step."""
import time


class EveryXSimulationSteps:
    def __init__(self, steps, fn):
        self.steps = steps
        self.fn = fn

    def __call__(self, step):
        if step % self.steps == 0:
            self.fn(step)


class EveryXWallTimeSeconds:
    def __init__(self, seconds, fn):
        self.seconds = seconds
        self.fn = fn
        self.last = time.perf_counter()

    def __call__(self, step):
        now = time.perf_counter()
        if now - self.last >= self.seconds:
            self.last = now
            self.fn(step)
