import math
import random
import time


def runner(idx, conn, n_update):
    """Plays n_update steps with the weights it got, sends the trajectory."""
    rng = random.Random(idx)
    while True:
        w = conn.recv()
        s, a, r, lp = [], [], [], []
        for _ in range(n_update):
            x = [rng.gauss(0, 1) for _ in range(8)]
            p = 1 / (1 + math.exp(-sum(wi * xi for wi, xi in zip(w, x))))
            act = int(rng.random() < p)
            s.append(x)
            a.append(act)
            r.append(float(act == (x[0] > 0)))
            lp.append(math.log(p if act else 1 - p))
        time.sleep(0.25)
        conn.send((s, a, r, lp))
