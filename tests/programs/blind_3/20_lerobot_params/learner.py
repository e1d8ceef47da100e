import time

import numpy as np


def push_parameters(queue, weights):
    queue.put([w.copy() for w in weights])


def run_learner(parameters_queue, push_seconds):
    rng = np.random.default_rng(0)
    weights = [rng.normal(size=(128, 128)).astype(np.float32) for _ in range(2)]
    while True:
        t0 = time.time()
        while time.time() - t0 < push_seconds:
            for w in weights:
                w += 1e-4 * rng.normal(size=w.shape).astype(np.float32)
            time.sleep(0.02)
        push_parameters(parameters_queue, weights)
