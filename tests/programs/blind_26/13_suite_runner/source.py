"""Test groups: where they come from and how runners draw them."""
import queue
import time

import torch


class Group:
    def __init__(self, name, seed, cases):
        self.name, self.seed, self.cases = name, seed, cases


class Manifest:
    """Expands suites into groups; parametrised suites have to be rendered first."""

    def __init__(self, suites, groups_per_suite, cases):
        self.suites = suites
        self.groups_per_suite = groups_per_suite
        self.cases = cases

    def render(self, suite):
        template = torch.randn(160, 160)
        end = time.monotonic() + self.suites[suite]
        while time.monotonic() < end:
            template = torch.tanh(template @ template.T / 160)
        return template

    def expand(self, suite):
        if self.suites[suite]:
            self.render(suite)
        for i in range(self.groups_per_suite):
            yield Group("%s/%02d" % (suite, i), hash((suite, i)) % 10000, self.cases)


class GroupSource:
    """Runner side: the current group of one runner process."""

    def __init__(self, test_queue):
        self.test_queue = test_queue
        self.current = None

    def next_group(self):
        try:
            self.current = self.test_queue.get(block=False)
        except queue.Empty:
            self.current = None
        return self.current
