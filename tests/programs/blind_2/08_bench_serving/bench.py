import argparse
import asyncio
import logging
import multiprocessing as mp
import random
import statistics
import time

log = logging.getLogger("bench")


class FakeEngine:
    """Stands for the model server: first token after a while, then a steady stream."""

    def __init__(self, seed):
        self.rng = random.Random(seed)

    async def generate(self, n_tokens):
        t0 = time.perf_counter()
        await asyncio.sleep(self.rng.uniform(0.02, 0.06))
        ttft = time.perf_counter() - t0
        for _ in range(n_tokens):
            await asyncio.sleep(0.001)
        return ttft, time.perf_counter() - t0


async def worker_async(config, barrier, results):
    engine = FakeEngine(config["seed"])
    interval = config["burst"] / config["request_rate"]
    log.info("worker %d: one request every %.3fs", config["index"], interval)
    # all workers begin at the same moment, so that the rates add up
    barrier.wait()
    pending = []
    for _ in range(config["num_requests"]):
        pending.append(asyncio.create_task(engine.generate(config["tokens"])))
        await asyncio.sleep(interval)
    results.put([await t for t in pending])


def worker_entry(config, barrier, results):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    try:
        asyncio.run(worker_async(config, barrier, results))
    finally:
        results.put(None)


def split_rate(total, n):
    base = total // n
    return [base] * (n - 1) + [total - base * n]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--workers", type=int, default=4)
    p.add_argument("--request-rate", type=int, default=40, help="requests per second, all workers together")
    p.add_argument("--num-requests", type=int, default=200)
    p.add_argument("--tokens", type=int, default=32)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    ctx = mp.get_context("spawn")
    barrier = ctx.Barrier(args.workers + 1)
    results = ctx.Queue()
    procs = []
    for i, rate in enumerate(split_rate(args.request_rate, args.workers)):
        config = {"index": i, "seed": i, "request_rate": rate, "burst": 1, "tokens": args.tokens,
                  "num_requests": args.num_requests // args.workers}
        procs.append(ctx.Process(target=worker_entry, args=(config, barrier, results), name=f"client-{i}"))
    for proc in procs:
        proc.start()
    barrier.wait()
    started = time.perf_counter()
    log.info("all clients ready")
    ttfts, done = [], 0
    while done < len(procs):
        item = results.get()
        if item is None:
            done += 1
        else:
            ttfts += [r[0] for r in item]
    log.info("%d requests in %.1fs, median ttft %.1f ms", len(ttfts), time.perf_counter() - started,
             1000 * statistics.median(ttfts))
    for proc in procs:
        proc.join()


if __name__ == "__main__":
    main()
