import logging
import signal
import time

import numpy as np

log = logging.getLogger("tagger.helpers")


def corpus_worker(index, batches, batch_size=64, features=256, tags=24):
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    rng = np.random.default_rng(index)
    proto = np.random.default_rng(99).normal(size=(tags, features))
    while True:
        y = rng.integers(0, tags, size=batch_size)
        x = proto[y] + rng.normal(0, 2.0, size=(batch_size, features))
        time.sleep(0.08)
        batches.put((x.astype(np.float32), y))


def write_metrics(metrics, slots, path):
    log.info("metrics go to %s", path)
    with open(path, "w", buffering=1) as f:
        f.write("step,time,loss\n")
        while True:
            row = metrics.get()
            if row is None:
                break
            f.write("%d,%.3f,%.5f\n" % row)
            slots.release()
