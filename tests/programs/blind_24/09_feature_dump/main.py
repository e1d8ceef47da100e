"""Feature extraction, stage one of the clip classifier."""
import argparse
import logging
import tempfile
import time

import torch.multiprocessing as mp

from extract import extract

log = logging.getLogger("stage1")


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--clips", type=int, default=48)
    ap.add_argument("--extractors", type=int, default=2)
    ap.add_argument("--batch-size", type=int, default=24)
    ap.add_argument("--size", type=int, default=160)
    ap.add_argument("--views", type=int, default=200, help="augmented views per clip, the last one is kept")
    ap.add_argument("--seconds", type=float, default=125)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s [stage1] %(message)s")
    ctx = mp.get_context("spawn")
    progress = ctx.Value("l", 0)
    with tempfile.TemporaryDirectory(prefix="features_") as folder:
        procs = []
        for slot in range(args.extractors):
            ids = list(range(slot, args.clips, args.extractors))
            p = ctx.Process(target=extract, args=(slot, ids, folder, args, progress), name=f"extract-{slot}")
            p.start()
            procs.append(p)
        began = time.monotonic()
        while any(p.is_alive() for p in procs) and time.monotonic() - began < args.seconds:
            time.sleep(5)
            done = progress.value
            total = args.clips * args.views
            rate = done / (time.monotonic() - began)
            left = (total - done) / rate / 60 if rate else float("inf")
            log.info("%d of %d views, %.1f per second, %.0f min left", done, total, rate, left)
        for p in procs:
            p.terminate()
            p.join()


if __name__ == "__main__":
    main()
