import gc
import logging
import time

log = logging.getLogger("gc")


class GarbageCollection:
    """Collects on a fixed schedule, at the same step on all ranks."""

    def __init__(self, freq):
        self.freq = freq
        gc.disable()
        gc.collect()
        gc.freeze()

    def run(self, step):
        if step % self.freq == 0:
            start = time.time()
            found = gc.collect()
            log.info("step %d: collected %d objects in %.2f s", step, found,
                     time.time() - start)
