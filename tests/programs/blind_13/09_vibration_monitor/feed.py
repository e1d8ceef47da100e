import time

import numpy as np


def run_feed(queues, args):
    """Stands for the acquisition card: a chunk of samples for all machines of all lines."""
    rng = np.random.default_rng(11)
    phase = rng.uniform(0, 6.28, (len(queues), args.machines, 1))
    freq = rng.uniform(0.05, 0.3, phase.shape)
    t = 0
    due = time.monotonic()
    while True:
        ticks = np.arange(t, t + args.chunk)
        signal = np.sin(phase + freq * ticks) + 0.1 * rng.standard_normal((len(queues), args.machines, args.chunk))
        if rng.random() < 0.02:
            signal[rng.integers(len(queues)), rng.integers(args.machines)] *= 3
        for q, chunk in zip(queues, signal.astype(np.float32)):
            q.put(chunk)
        t += args.chunk
        due += 1.0 / args.chunks_per_second
        time.sleep(max(0.0, due - time.monotonic()))
