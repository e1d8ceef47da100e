import argparse
import logging
import multiprocessing as mp
import time
from queue import Empty

import numpy as np

from actor_worker import ActorWorker

log = logging.getLogger("appo")


class Learner:
    def __init__(self, traj_queue, batch):
        self.traj_queue, self.batch = traj_queue, batch
        self.w = np.zeros(12, dtype=np.float32)
        self.updates = 0

    def update(self, timeout=0.5):
        try:
            batch = np.stack([self.traj_queue.get(timeout=timeout)[1] for _ in range(self.batch)])
        except Empty:
            return
        self.w += 0.01 * batch.mean((0, 1))
        self.updates += 1


def summarize(report_queue, stats):
    for _ in range(report_queue.qsize()):
        r = report_queue.get()
        stats[r["rank"]] = r["mean"]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--actors", type=int, default=4)
    ap.add_argument("--report-size", type=int, default=30)
    ap.add_argument("--summary-every", type=float, default=2.0)
    ap.add_argument("--max-time", type=float, default=85)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    traj_queue, report_queue = mp.Queue(8), mp.Queue(args.report_size)
    step_ms = [2, 4, 160, 200]
    actors = [ActorWorker(r, traj_queue, report_queue, step_ms[r % 4]) for r in range(args.actors)]
    for a in actors:
        a.start()
    learner, stats = Learner(traj_queue, 1), {}
    start = last = time.time()
    while time.time() - start < args.max_time:
        learner.update()
        if time.time() - last > args.summary_every:
            last = time.time()
            summarize(report_queue, stats)
            log.info("updates %d (%.1f/s) reward %s", learner.updates, learner.updates / (last - start),
                     {k: round(v, 3) for k, v in sorted(stats.items())})
    for a in actors:
        a.terminate()


if __name__ == "__main__":
    main()
