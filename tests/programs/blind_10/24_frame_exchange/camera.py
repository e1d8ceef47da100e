import logging
import time

import numpy as np

from exchange import BlockNamer, FrameBlock

log = logging.getLogger("frames.camera")


class Camera:
    """Simulated camera which delivers short bursts of frames."""

    def __init__(self, ident, frames, edge):
        self.rng = np.random.default_rng(ident)
        self.names = BlockNamer(f"cam{ident}")
        self.shape = (frames, edge, edge)

    def burst(self):
        block = FrameBlock.create(self.names(), self.shape)
        block.array[:] = self.rng.random(self.shape, dtype=np.float32)
        handle = block.handle
        block.close()
        return handle


def camera_main(ident, outbox, frames, edge, interval, stop):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    camera = Camera(ident, frames, edge)
    while not stop.is_set():
        outbox.put(camera.burst())
        time.sleep(interval)
    log.info("%d bursts delivered", camera.names.count)
