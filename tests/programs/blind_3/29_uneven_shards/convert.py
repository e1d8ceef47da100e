import argparse
import logging
import multiprocessing as mp
import time

import numpy as np

log = logging.getLogger("convert")


class ShardConverter(mp.Process):
    def __init__(self, rank, n_records, done):
        super().__init__(name=f"convert-{rank}", daemon=True)
        self.rank, self.n_records, self.done = rank, n_records, done

    def convert(self, i):
        rng = np.random.default_rng(i)
        x = rng.normal(size=(64, 64))
        time.sleep(0.05)
        return float(np.linalg.norm(x))

    def run(self):
        total = 0.0
        for i in range(self.n_records):
            total += self.convert(i)
            with self.done.get_lock():
                self.done.value += 1
        log.info("shard %d finished, %d records, checksum %.1f", self.rank, self.n_records, total)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--sizes", type=int, nargs="*", default=[60, 90, 180, 1200])
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    done = mp.Value("i", 0)
    procs = [ShardConverter(r, n, done) for r, n in enumerate(args.sizes)]
    for p in procs:
        p.start()
    while any(p.is_alive() for p in procs):
        time.sleep(2)
        log.info("%d / %d records, %d shards open", done.value, sum(args.sizes),
                 sum(p.is_alive() for p in procs))
    for p in procs:
        p.join()


if __name__ == "__main__":
    main()
