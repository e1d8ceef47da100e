import random
import time


def make_batch(rng, burnin=40, seq=80):
    """One R2D2 style sequence with its burn-in part."""
    return {"states": rng.randbytes((burnin + seq) * 40 * 40), "actions": [rng.randrange(6) for _ in range(seq)],
            "rewards": [rng.random() for _ in range(seq)], "priority": rng.random()}


def actor(idx, remote_memory, params, stop):
    rng = random.Random(idx)
    sent = 0
    while not stop.is_set():
        time.sleep(0.08)
        remote_memory.put(make_batch(rng))
        sent += 1
        if sent % 50 == 0:
            with params.get_lock():
                _ = params.value
