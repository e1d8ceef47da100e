import random
import time


def sampler(idx, conn):
    """Collects a fixed number of frames with the weights it was sent, then waits for the next ones."""
    rng = random.Random(idx)
    while True:
        weights, n = conn.recv()
        out = []
        for _ in range(n):
            time.sleep(0.02)
            s = [rng.gauss(0, 1) for _ in range(len(weights))]
            out.append((s, sum(w * x for w, x in zip(weights, s))))
        conn.send(out)
