import math
from collections import defaultdict


class RungScheduler:
    """Asynchronous successive halving: stop a trial that is not in the best
    third of those that have reached the same rung."""

    CONTINUE, STOP = "continue", "stop"

    def __init__(self, rungs=(3, 9), keep=0.34, grace=1):
        self.rungs = tuple(rungs)
        self.keep = keep
        self.grace = grace
        self.results = defaultdict(list)

    def on_result(self, trial_id, epoch, loss):
        if math.isnan(loss):
            return self.STOP
        if epoch not in self.rungs:
            return self.CONTINUE
        seen = self.results[epoch]
        seen.append(loss)
        if len(seen) <= self.grace:
            return self.CONTINUE
        cut = sorted(seen)[max(0, math.ceil(len(seen) * self.keep) - 1)]
        return self.CONTINUE if loss <= cut else self.STOP
