import logging
import signal
import time

import torch

log = logging.getLogger("mixer")


class LinearMixer:
    """Averages the diffs of all shards every ``count`` updates or ``interval`` seconds."""

    def __init__(self, ctx, shards, count, interval):
        self.shards = shards
        self.count = count
        self.interval = interval
        self.lock = ctx.Lock()
        self.pending = ctx.Value("l", 0, lock=False)
        self.total = ctx.Value("l", 0, lock=False)
        self.rounds = ctx.Value("l", 0, lock=False)

    def updated(self, n=1):
        with self.lock:
            self.pending.value += n
            self.total.value += n

    def due(self, last):
        return self.pending.value >= self.count or time.monotonic() - last > self.interval

    def mix(self):
        with self.lock:
            diffs = [shard.get_diff() for shard in self.shards]
            merged = torch.stack(diffs).mean(0)
            for shard in self.shards:
                shard.put_diff(merged)
            self.pending.value = 0
            self.rounds.value += 1
        return float(merged.norm())

    def run(self, walltime):
        signal.alarm(walltime)
        torch.set_num_threads(1)
        last = time.monotonic()
        while True:
            time.sleep(0.1)
            if self.due(last):
                size = self.mix()
                last = time.monotonic()
                log.info("round %d mixed, |diff| %.3f", self.rounds.value, size)
