import argparse
import logging
import multiprocessing as mp
import time

import numpy as np

from evaluate import shard_main

log = logging.getLogger("eval")


def evaluate(epoch, args):
    results = mp.Queue()
    procs = []
    for shard in range(args.shards):
        pr = mp.Process(target=shard_main, args=(shard, args.examples, args.classes, results))
        pr.start()
        procs.append(pr)
    for pr in procs:
        pr.join()
    parts = [results.get() for _ in procs]
    parts.sort(key=lambda d: d["shard"])
    return np.concatenate([d["probs"] for d in parts])


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--shards", type=int, default=3)
    p.add_argument("--examples", type=int, default=1500)
    p.add_argument("--classes", type=int, default=100)
    p.add_argument("--epochs", type=int, default=5)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    for epoch in range(args.epochs):
        log.info("epoch %d: evaluation on %d shards", epoch, args.shards)
        t0 = time.time()
        probs = evaluate(epoch, args)
        log.info("epoch %d: mean confidence %.4f in %.1fs", epoch, probs.max(1).mean(), time.time() - t0)


if __name__ == "__main__":
    main()
