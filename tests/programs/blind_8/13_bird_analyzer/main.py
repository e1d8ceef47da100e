import argparse
import logging
import multiprocessing as mp
import queue
import time

from analyzer.guard import MemoryGuard
from analyzer.ring import SegmentRing
from analyzer.worker import AnalysisWorker

log = logging.getLogger("birds")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--recordings", type=int, default=600)
    p.add_argument("--workers", type=int, default=3)
    p.add_argument("--memory-limit-mb", type=int, default=420)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")

    ring = SegmentRing(args.recordings)
    results = mp.Queue()
    workers = [AnalysisWorker(i, ring, results) for i in range(args.workers)]
    for w in workers:
        w.start()
    guard = MemoryGuard(workers, args.memory_limit_mb)
    guard.start()

    detections = {}
    while len(detections) < args.recordings:
        try:
            index, species = results.get(timeout=5)
        except queue.Empty:
            log.info("%d/%d recordings analyzed", len(detections), args.recordings)
            continue
        detections[index] = species
        if len(detections) % 20 == 0:
            log.info("%d/%d recordings analyzed", len(detections), args.recordings)
    log.info("%d detections", sum(detections.values()))


if __name__ == "__main__":
    main()
