"""Perplexity of a language model over an evaluation set in shards, with one process for each part of them."""
import argparse
import logging
import math
import multiprocessing as mp
import queue
import time
from dataclasses import dataclass

import walltime
from worker import worker_main

log = logging.getLogger("eval")


@dataclass(frozen=True)
class Shard:
    number: int
    batches: int


def make_shards(args) -> list[Shard]:
    """The crawl shard is much longer than the others."""
    shards = []
    for n in range(args.shards):
        batches = args.batches + (n * 7) % 11
        if n == args.crawl_shard:
            batches *= args.crawl_factor
        shards.append(Shard(n, batches))
    return shards


class Totals:
    def __init__(self, expected: int):
        self.expected = expected
        self.loss = 0.0
        self.tokens = 0
        self.seen: set[int] = set()

    def add(self, result: dict) -> None:
        self.loss += result["loss"]
        self.tokens += result["tokens"]
        self.seen.add(result["shard"])

    @property
    def complete(self) -> bool:
        return len(self.seen) == self.expected

    @property
    def perplexity(self) -> float:
        return math.exp(self.loss / max(1, self.tokens))


def collect(results, totals: Totals) -> None:
    while not totals.complete:
        try:
            result = results.get(timeout=10.0)
        except queue.Empty:
            log.info("waiting for results, %d of %d shards so far", len(totals.seen), totals.expected)
            continue
        totals.add(result)
        log.info("shard %d took %.1f s, perplexity so far %.2f", result["shard"], result["seconds"], totals.perplexity)


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--workers", type=int, default=3)
    p.add_argument("--shards", type=int, default=87)
    p.add_argument("--batches", type=int, default=20)
    p.add_argument("--crawl-shard", type=int, default=1)
    p.add_argument("--crawl-factor", type=int, default=12)
    p.add_argument("--batch-size", type=int, default=8)
    p.add_argument("--length", type=int, default=24)
    p.add_argument("--vocab", type=int, default=200)
    p.add_argument("--dim", type=int, default=48)
    p.add_argument("--decay", type=float, default=0.7)
    p.add_argument("--io-seconds", type=float, default=0.13, help="pause of the storage between two batches")
    p.add_argument("--stall-seconds", type=float, default=12.0, help="watchdog of the workers")
    p.add_argument("--limit", type=float, default=115.0)
    p.add_argument("--seed", type=int, default=31)
    return p.parse_args()


def main() -> None:
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s main: %(message)s")
    walltime.arm(args.limit)
    shards = make_shards(args)
    ctx = mp.get_context("fork")
    results = ctx.Queue()
    procs = []
    for i in range(args.workers):
        proc = ctx.Process(target=worker_main, args=(args, i, shards[i::args.workers], results), name=f"evaluator-{i}")
        proc.start()
        procs.append(proc)
    totals = Totals(len(shards))
    started = time.perf_counter()
    collect(results, totals)
    for proc in procs:
        proc.join()
    log.info("perplexity %.3f over %d tokens in %.0f s", totals.perplexity, totals.tokens, time.perf_counter() - started)


if __name__ == "__main__":
    main()
