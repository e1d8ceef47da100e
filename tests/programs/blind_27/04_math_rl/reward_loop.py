"""Reward workers: every worker scores its share of the responses in its own process."""
import logging
import multiprocessing as mp
from concurrent.futures import ThreadPoolExecutor

from grader import compute_score

logger = logging.getLogger("reward")


def reward_loop_worker(index, requests, results):
    pool = ThreadPoolExecutor(max_workers=2)
    logger.info("reward worker %d ready", index)
    while True:
        item = requests.get()
        if item is None:
            break
        uid, solution, truth = item
        results.put((uid, pool.submit(compute_score, solution, truth).result()))
    pool.shutdown()


class RewardLoopManager:
    def __init__(self, num_workers):
        ctx = mp.get_context("fork")
        self.results = ctx.Queue()
        self.requests = [ctx.Queue() for _ in range(num_workers)]
        self.workers = [ctx.Process(target=reward_loop_worker, args=(i, q, self.results), name=f"RewardLoopWorker-{i}")
                        for i, q in enumerate(self.requests)]
        for w in self.workers:
            w.start()

    def compute_rewards(self, solutions, truths):
        for uid, (solution, truth) in enumerate(zip(solutions, truths)):
            self.requests[uid % len(self.requests)].put((uid, solution, truth))
        scores = [0.0] * len(solutions)
        for _ in solutions:
            uid, score = self.results.get()
            scores[uid] = score
        return scores

    def close(self):
        for q in self.requests:
            q.put(None)
        for w in self.workers:
            w.join()
