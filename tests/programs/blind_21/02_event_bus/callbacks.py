import logging
import time

log = logging.getLogger("callbacks")


class WarmupLR:
    """Linear warm-up; takes itself off the bus when it is over."""

    def __init__(self, bus, optimizer, base_lr, warmup_updates):
        self.bus, self.optimizer = bus, optimizer
        self.base_lr, self.warmup_updates = base_lr, warmup_updates
        bus.subscribe("update", self.on_update)

    def on_update(self, update, **_):
        scale = min(1.0, update / self.warmup_updates)
        for group in self.optimizer.param_groups:
            group["lr"] = self.base_lr * scale
        if update >= self.warmup_updates:
            log.info("warm-up finished, lr %.2e", self.base_lr)
            self.bus.unsubscribe("update", self.on_update)


class Throughput:
    def __init__(self, bus, every):
        self.every, self.count, self.since = every, 0, time.time()
        bus.subscribe("update", self.on_update)

    def on_update(self, update, loss, **_):
        self.count += 1
        if self.count == self.every:
            took = time.time() - self.since
            log.info("update %d loss %.4f %.1f updates/s", update, loss, self.count / took)
            self.count, self.since = 0, time.time()


class BestTracker:
    def __init__(self, bus):
        self.best = float("inf")
        bus.subscribe("update", self.on_update)

    def on_update(self, update, loss, **_):
        self.best = min(self.best, loss)


class Heartbeat:
    def __init__(self, bus):
        self.beats = 0
        bus.subscribe("heartbeat", self.on_beat)

    def on_beat(self, alive, **_):
        self.beats += 1
        if self.beats % 5 == 0:
            log.info("heartbeat %d, %d samplers alive", self.beats, alive)
