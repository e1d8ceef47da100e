"""Rank candidate lists: an asyncio front end that scores over long-lived RPC channels."""
import argparse
import asyncio
import logging
import multiprocessing as mp
import time

import numpy as np

from backend import run_backend
from channel import RpcChannel

log = logging.getLogger("frontend")


class Frontend:
    def __init__(self, addresses, args):
        self.addresses, self.args = addresses, args
        self.answered = 0

    async def session(self, channel: RpcChannel, seed: int):
        rng = np.random.default_rng(seed)
        while True:
            candidates = rng.standard_normal((self.args.candidates, self.args.features), dtype=np.float32)
            scores = await channel.call("score", candidates)
            order = np.argsort(-scores)[: self.args.top]
            self.answered += len(order) > 0
            await asyncio.sleep(self.args.think)

    async def report(self, channels):
        last, tick = 0, time.monotonic()
        while True:
            await asyncio.sleep(5)
            stats = [await channel.call("stats") for channel in channels]
            now = time.monotonic()
            log.info("%d lists ranked, %.0f/s, candidates scored %s", self.answered, (self.answered - last) / (now - tick), [s["scored"] for s in stats])
            last, tick = self.answered, now

    async def run(self):
        channels, tasks = [], []
        for address in self.addresses:
            channel = RpcChannel(*await asyncio.open_connection(*address), {})
            channels.append(channel)
            tasks.append(asyncio.create_task(channel.serve()))
        for index in range(self.args.sessions):
            tasks.append(asyncio.create_task(self.session(channels[index % len(channels)], index)))
        tasks.append(asyncio.create_task(self.report(channels)))
        await asyncio.gather(*tasks)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--backends", type=int, default=2)
    parser.add_argument("--sessions", type=int, default=24)
    parser.add_argument("--candidates", type=int, default=32)
    parser.add_argument("--features", type=int, default=24)
    parser.add_argument("--top", type=int, default=5)
    parser.add_argument("--think", type=float, default=0.02)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s[%(process)d] %(message)s")

    ctx = mp.get_context("spawn")
    waiting = []
    for index in range(args.backends):
        ready, child = ctx.Pipe()
        ctx.Process(target=run_backend, args=(args.features, child), name=f"backend-{index}", daemon=True).start()
        waiting.append(ready)
    addresses = [ready.recv() for ready in waiting]
    asyncio.run(Frontend(addresses, args).run())


if __name__ == "__main__":
    main()
