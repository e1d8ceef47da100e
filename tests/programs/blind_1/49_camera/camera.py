import random
import time


def camera(idx, frames, fps):
    """Stand-in for a line camera with a fixed frame rate."""
    rng, nxt = random.Random(idx), time.time()
    while True:
        nxt += 1 / fps
        time.sleep(max(0, nxt - time.time()))
        frames.put((idx, time.time(), rng.randbytes(3 * 96 * 96)))
