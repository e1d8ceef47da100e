"""Callbacks for the benchmark trainer."""
import logging
import time

log = logging.getLogger("callbacks")


class Control:
    def __init__(self):
        self.should_stop = False


class Callback:
    def on_train_begin(self, state, control):
        pass

    def on_step_end(self, state, control):
        pass


class Throughput(Callback):
    def __init__(self, every=20):
        self.every = every

    def on_train_begin(self, state, control):
        self.t0 = time.perf_counter()
        self.samples = 0

    def on_step_end(self, state, control):
        self.samples += state["batch"]
        if state["step"] % self.every == 0:
            rate = self.samples / (time.perf_counter() - self.t0)
            log.info("step %d loss %.4f %.0f samples/s", state["step"], state["loss"], rate)


class StopAfterSeconds(Callback):
    """Ends a measurement once enough seconds of training have been seen."""

    def __init__(self, seconds):
        self.seconds = seconds
        self.started = None

    def on_train_begin(self, state, control):
        self.started = time.monotonic()

    def on_step_end(self, state, control):
        if time.monotonic() - self.started >= self.seconds:
            log.info("measured %.1f s of training, stopping at step %d", self.seconds, state["step"])
            control.should_stop = True
