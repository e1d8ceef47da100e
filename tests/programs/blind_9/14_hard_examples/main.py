"""Hard example mining on a frozen backbone, two miners and a collector."""
import argparse
import logging
import multiprocessing as mp

from mining import mine

log = logging.getLogger("collector")

if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--miners", type=int, default=2)
    ap.add_argument("--batch-size", type=int, default=128)
    ap.add_argument("--features", type=int, default=2048)
    ap.add_argument("--pause", type=float, default=0.9)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    ctx = mp.get_context("fork")
    reports = ctx.Queue(maxsize=100)
    for i in range(args.miners):
        ctx.Process(target=mine, args=(i, args, reports), name=f"miner-{i}", daemon=True).start()
    while True:
        worker, batches, kept, nbytes, loss = reports.get()
        log.info("miner %d: %d batches, %d hard examples kept (%.1f MB), mean loss %.3f",
                 worker, batches, kept, nbytes / 2 ** 20, loss)
