"""Round based policy evaluation: every worker plays a number of episodes and reports the scores."""
import argparse
import logging
import multiprocessing as mp
import time

import numpy as np

from worker import run_worker

log = logging.getLogger("eval")


class Coordinator:
    def __init__(self, num_workers, episodes_per_round, seed):
        self.episodes = episodes_per_round
        self.workers = []
        ctx = mp.get_context("fork")
        self.events = ctx.SimpleQueue()
        for idx in range(num_workers):
            parent, child = ctx.Pipe()
            proc = ctx.Process(target=run_worker, args=(idx, child, self.events, seed + idx),
                               name=f"eval-worker-{idx}", daemon=True)
            proc.start()
            child.close()
            self.workers.append((proc, parent))

    def start_round(self, number):
        for _, conn in self.workers:
            conn.send(("round", number, self.episodes))

    def collect(self):
        scores = []
        for _, conn in self.workers:
            scores.extend(conn.recv())
        return scores

    def drain_events(self):
        count = 0
        while not self.events.empty():
            count += len(self.events.get())
        return count

    def close(self):
        for proc, conn in self.workers:
            conn.send(("stop", 0, 0))
        for proc, _ in self.workers:
            proc.join(timeout=5)


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--workers", type=int, default=3)
    p.add_argument("--episodes", type=int, default=16)
    p.add_argument("--rounds", type=int, default=5000)
    p.add_argument("--seed", type=int, default=7)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    coord = Coordinator(args.workers, args.episodes, args.seed)
    log.info("started %d workers", args.workers)
    for number in range(args.rounds):
        begin = time.time()
        coord.start_round(number)
        scores = coord.collect()
        spans = coord.drain_events()
        log.info("round %d: %d episodes, mean score %.3f, %d spans, %.2fs",
                 number, len(scores), float(np.mean(scores)), spans, time.time() - begin)
    coord.close()


if __name__ == "__main__":
    main()
