import logging
import time

import numpy as np

log = logging.getLogger("replay.actor")


def actor_main(ident, replay, stop, fps):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    rng = np.random.default_rng(ident)
    frame = rng.integers(0, 255, replay.obs_shape, dtype=np.uint8)
    steps = 0
    while not stop.is_set():
        for _ in range(fps // 5):
            frame = np.roll(frame, 1, axis=-1)
            replay.append(ident, frame, float(rng.standard_normal()))
            steps += 1
        if steps % (fps * 10) == 0:
            log.info("actor %d: %d steps", ident, steps)
        time.sleep(0.2)
