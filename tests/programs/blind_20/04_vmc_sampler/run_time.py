"""Stop the sampling loop in time, so that the results are written before the queue ends the job."""
import logging
import time

log = logging.getLogger("vmc")


class LoopTimer:
    def __init__(self):
        self.blocks = 0
        self.total = 0.0
        self._begin = 0.0

    def start(self) -> None:
        self._begin = time.monotonic()

    def stop(self) -> None:
        self.total += time.monotonic() - self._begin
        self.blocks += 1

    @property
    def per_block(self) -> float:
        return self.total / self.blocks if self.blocks else 0.0


class RunTimeControl:
    """Compares the time that is left with what another block is going to take."""

    def __init__(self, timer: LoopTimer, max_seconds: float, run_start: float, margin: float = 1.1, padding: float = 0.3):
        self.timer = timer
        self.max_seconds = max_seconds
        self.run_start = run_start
        self.margin = margin
        self.padding = padding

    def elapsed(self) -> float:
        return time.monotonic() - self.run_start

    def enough_time_for_next_block(self) -> bool:
        needed = self.margin * self.timer.per_block + self.padding
        return self.elapsed() + needed < self.max_seconds

    def announce(self, block: int) -> None:
        log.info("time limit reached after block %d: %.2f s elapsed, %.2f s per block",
                 block, self.elapsed(), self.timer.per_block)
