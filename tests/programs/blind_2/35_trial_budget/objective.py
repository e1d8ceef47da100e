import random
import time


def objective(params, epochs=12):
    """Validation error of a small model; deep configurations train slowly."""
    rng = random.Random(params["seed"])
    depth, lr = params["depth"], params["lr"]
    err = 1.0
    for _ in range(epochs):
        acc = 0.0
        for i in range(20_000):
            acc += (i % 7) * lr
        time.sleep(0.02 * depth)
        err *= 1 - min(0.3, lr * depth * rng.uniform(0.5, 1.5))
    return err
