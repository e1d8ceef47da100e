"""Evaluate a scoring model on several multiple-choice tasks; requests go to a local scoring server."""
import argparse
import logging
import multiprocessing as mp
import os
import random
import threading
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Client

log = logging.getLogger("evaluate")
TASKS = ["arc_easy", "hellaswag", "piqa", "winogrande", "boolq", "openbookqa", "copa", "sciq"]


def walltime_limit(seconds):
    def expire():
        time.sleep(seconds)
        os._exit(0)

    threading.Thread(target=expire, name="walltime", daemon=True).start()


@dataclass
class Example:
    task: str
    index: int
    choices: list = field(default_factory=list)
    gold: int = 0


def build_task(name, n_examples, vocab=4000, length=48):
    rng = random.Random(name)
    examples = []
    for i in range(n_examples):
        prefix = [rng.randrange(vocab) for _ in range(length - 8)]
        choices = [prefix + [rng.randrange(vocab) for _ in range(8)] for _ in range(4)]
        examples.append(Example(name, i, choices, rng.randrange(4)))
    return examples


class ScoreClient:
    """One connection per evaluation worker."""

    def __init__(self, address, authkey):
        self.conn = Client(address, authkey=authkey)
        self.sent = 0

    def score(self, tokens):
        self.sent += 1
        self.conn.send({"id": self.sent, "tokens": tokens})
        reply = self.conn.recv()
        assert reply["id"] == self.sent
        return reply["score"]


_client = None


def init_worker(address, authkey, walltime):
    global _client
    walltime_limit(walltime)
    _client = ScoreClient(address, authkey)


def tokenize(example):
    time.sleep(random.uniform(0.001, 0.02))
    return example.choices


def evaluate_example(example):
    scores = [_client.score(tokens) for tokens in tokenize(example)]
    best = max(range(len(scores)), key=lambda i: scores[i] if scores[i] is not None else float("-inf"))
    return example.index, best == example.gold


class Evaluator:
    def __init__(self, pool, args):
        self.pool, self.args = pool, args
        self.results = {}

    def run_task(self, name):
        examples = build_task(name, self.args.examples)
        started = time.time()
        outcome = self.pool.map(evaluate_example, examples, chunksize=4)
        accuracy = sum(ok for _, ok in outcome) / len(outcome)
        self.results.setdefault(name, []).append(accuracy)
        log.info("%-12s acc %.3f  (%d examples, %.1f s)", name, accuracy, len(outcome), time.time() - started)

    def run(self):
        for seed in range(self.args.repeats):
            log.info("repeat %d", seed)
            for name in TASKS:
                self.run_task(name)
        for name, accs in self.results.items():
            log.info("final %-12s %.3f", name, sum(accs) / len(accs))


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--workers", type=int, default=4)
    p.add_argument("--examples", type=int, default=200)
    p.add_argument("--repeats", type=int, default=20)
    p.add_argument("--walltime", type=int, default=115)
    return p.parse_args()


def main():
    from server import AUTHKEY, ScoringServer
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    walltime_limit(args.walltime)
    parent, child = mp.Pipe()
    server = ScoringServer(child, args.walltime)
    server.start()
    address = parent.recv()
    log.info("scoring server at %s", address)
    with mp.Pool(args.workers, initializer=init_worker, initargs=(address, AUTHKEY, args.walltime)) as pool:
        Evaluator(pool, args).run()
    server.terminate()


if __name__ == "__main__":
    main()
