import logging

logger = logging.getLogger(__name__)


class EpochCounter:
    def __init__(self, limit):
        self.current, self.limit = 0, int(limit)

    def __iter__(self):
        return self

    def __next__(self):
        if self.current < self.limit:
            self.current += 1
            return self.current
        raise StopIteration


class EpochCounterWithStopper(EpochCounter):
    """Stops when the tracked metric has not improved for some epochs."""

    def __init__(self, limit, limit_to_stop, limit_warmup, direction="min"):
        super().__init__(limit)
        self.limit_to_stop, self.limit_warmup, self.direction = limit_to_stop, limit_warmup, direction
        self.best_limit, self.best_score = 0, float("inf") if direction == "min" else float("-inf")
        self.should_stop = False

    def __next__(self):
        if self.should_stop:
            logger.info("Stop training after epoch %d, best was %d", self.current, self.best_limit)
            raise StopIteration
        return super().__next__()

    def update_metric(self, score):
        better = score < self.best_score if self.direction == "min" else score > self.best_score
        if better:
            self.best_limit, self.best_score = self.current, score
        elif self.current > self.limit_warmup:
            self.should_stop = self.current - self.best_limit >= self.limit_to_stop
