import time

import numpy as np


def drive(number, frames_out, stop, fps):
    """One simulator: renders frames of a drive and has the teacher label them."""
    rng = np.random.default_rng(number)
    road = rng.integers(0, 2, (192, 192, 7), dtype=np.uint8)
    scene = rng.integers(0, 255, (160, 384, 3), dtype=np.uint8)
    tick = 0
    next_frame = time.time()
    while not stop.is_set():
        tick += 1
        birdview = np.roll(road, tick, axis=0)
        rgb = np.roll(scene, 3 * tick, axis=1)
        waypoints = np.cumsum(rng.normal(0.5, 0.1, (5, 2)), axis=0).astype(np.float32)
        frames_out.put((birdview, rgb, tick // 50 % 4, waypoints, float(rng.exponential())))
        next_frame += 1.0 / fps
        time.sleep(max(0.0, next_frame - time.time()))
    frames_out.put(None)
