"""Reward service of a code RL run: a few long-lived workers score the rollouts of each policy step."""
import argparse
import logging
import multiprocessing as mp
import time

from executor import run_candidate
from samples import rollout

log = logging.getLogger("reward")


def reward_worker(requests, replies):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    while True:
        item = requests.recv()
        if item is None:
            break
        result = run_candidate(item["source"], item["tests"])
        replies.put((item["id"], result))
        time.sleep(0.05)


class RewardPool:
    def __init__(self, workers):
        self.replies = mp.Queue()
        self.pipes, self.workers = [], []
        for i in range(workers):
            recv, send = mp.Pipe(duplex=False)
            proc = mp.Process(target=reward_worker, args=(recv, self.replies), name=f"reward-{i}", daemon=True)
            proc.start()
            self.pipes.append(send)
            self.workers.append(proc)

    def score(self, items):
        for n, item in enumerate(items):
            self.pipes[n % len(self.pipes)].send(item)
        scores = {}
        while len(scores) < len(items):
            index, result = self.replies.get()
            scores[index] = result["passed"] / result["total"]
        return scores


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--generation-time", type=float, default=0.4)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    pool = RewardPool(args.workers)
    for step in range(args.steps):
        time.sleep(args.generation_time)
        scores = pool.score([rollout(step * args.batch + i) for i in range(args.batch)])
        log.info("step %d mean reward %.3f", step, sum(scores.values()) / len(scores))


if __name__ == "__main__":
    main()
