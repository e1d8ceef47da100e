"""Which operators take the time of a run? A table for the report at its end."""
import logging

import torch
from torch.profiler import ProfilerActivity, profile

log = logging.getLogger("op-times")


class OpTimes:
    """Context of the run whose operators are to be counted; does nothing where not enabled."""

    def __init__(self, enabled, top=15, shapes=False):
        self.enabled = enabled
        self.top = top
        self.session = None
        if enabled:
            self.session = profile(activities=[ProfilerActivity.CPU], record_shapes=shapes)

    def __enter__(self):
        if self.enabled:
            self.session.start()
            log.info("operator times are on")
        return self

    def __exit__(self, *exc):
        if not self.enabled:
            return
        self.session.stop()
        table = self.session.key_averages().table(sort_by="self_cpu_time_total",
                                                                           row_limit=self.top)
        log.info("operators of the whole run\n%s", table)

    def mark(self, step):
        """Marks the steps in the record."""
        return torch.profiler.record_function(f"step_{step % 1000}")
