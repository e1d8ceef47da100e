import logging
import time

import numpy as np

log = logging.getLogger("features.reader")


class BatchReader:
    def __init__(self, store, first, last, batch_size, seed):
        self.table = store.open()
        self.rows = (first, last if last is not None else len(self.table))
        self.batch_size = batch_size
        self.rng = np.random.default_rng(seed)

    def batch(self):
        index = np.sort(self.rng.integers(*self.rows, self.batch_size))
        return np.asarray(self.table[index])


def reader_main(store, first, last, batch_size, seed, outbox):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    reader = BatchReader(store, first, last, batch_size, seed)
    log.info("reading rows %d to %d", *reader.rows)
    while True:
        outbox.put(reader.batch())
        time.sleep(0.05)
