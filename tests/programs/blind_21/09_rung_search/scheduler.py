"""Successive halving over wall-clock rungs."""
import logging
from dataclasses import dataclass, field

log = logging.getLogger("halving")


@dataclass
class Trial:
    name: str
    config: dict
    process: object = None
    losses: list = field(default_factory=list)
    state: str = "running"

    @property
    def score(self):
        recent = self.losses[-20:]
        return sum(recent) / len(recent) if recent else float("inf")


class SuccessiveHalving:
    def __init__(self, rungs, keep):
        self.rungs = list(rungs)
        self.keep = keep

    def due(self, elapsed):
        return bool(self.rungs) and elapsed >= self.rungs[0]

    def cut(self, trials):
        """Returns the trials that do not pass this rung, worst first."""
        self.rungs.pop(0)
        running = sorted((t for t in trials if t.state == "running"), key=lambda t: t.score)
        survivors = max(1, round(len(running) * self.keep))
        for t in running:
            log.info("  %s score %.4f after %d reports", t.name, t.score, len(t.losses))
        return running[:survivors - 1:-1] if survivors < len(running) else []
