import argparse
import logging
import mmap
import multiprocessing as mp
import time

import numpy as np

log = logging.getLogger("extract")


class PatchExtractor:
    """Mean/var of random patches of a volume, with a padded work volume per patch."""

    def __init__(self, shape, seed):
        self.rng = np.random.default_rng(seed)
        self.volume = self.rng.random((32, 64, 64), dtype=np.float32)
        self.shape = shape

    def padded(self):
        pages = mmap.mmap(-1, 4 * int(np.prod(self.shape)))
        work = np.frombuffer(pages, dtype=np.float32).reshape(self.shape)
        work.fill(1.0)
        return work

    def extract(self):
        work = self.padded()
        z, y, x = (int(self.rng.integers(0, s - 16)) for s in self.volume.shape)
        patch = self.volume[z:z + 16, y:y + 16, x:x + 16]
        work[:16, :16, :16] = patch
        sub = work[:32, :32, :32]
        return float(sub.mean()), float(sub.var())


def run(rank, args, out):
    ex = PatchExtractor((args.depth, 512, 512), rank)
    while True:
        out.put((rank, ex.extract()))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--depth", type=int, default=64)
    ap.add_argument("--max-time", type=float, default=80)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    out = mp.Queue(32)
    procs = [mp.Process(target=run, args=(r, args, out), name=f"extract-{r}", daemon=True)
             for r in range(args.workers)]
    for p in procs:
        p.start()
    start, n, shown = time.time(), 0, time.time()
    while time.time() - start < args.max_time:
        out.get()
        n += 1
        if time.time() - shown > 5:
            shown = time.time()
            log.info("%d patches, %.1f patches/s", n, n / (shown - start))
    for p in procs:
        p.terminate()


if __name__ == "__main__":
    main()
