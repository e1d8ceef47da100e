import argparse
import asyncio
import logging
import random
import sys
import time

from coordinator import ProtoCoordinator, RequestCtx

log = logging.getLogger("build")


def parse_args():
    p = argparse.ArgumentParser(description="replay a build through persistent workers")
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--rate", type=float, default=18.0, help="actions per second")
    p.add_argument("--request-timeout", type=float, default=900.0)
    p.add_argument("--duration", type=float, default=125.0)
    p.add_argument("--seed", type=int, default=1)
    return p.parse_args()


class ActionSource:
    """Javac-like actions: a few class path jars and a handful of sources."""

    def __init__(self, rate, seed):
        self.rate = rate
        self.rng = random.Random(seed)
        self.next_id = 0

    def make(self):
        self.next_id += 1
        jars = {f"lib/dep{i}.jar": self.rng.randbytes(self.rng.randrange(60_000, 120_000))
                for i in range(3)}
        sources = {f"src/Mod{self.next_id}_{i}.java": self.rng.randbytes(8_000) for i in range(4)}
        args = ["javac", "-d", f"out/mod{self.next_id}", *sources]
        return RequestCtx(self.next_id, args, {**jars, **sources})

    async def __aiter__(self):
        due = time.monotonic()
        while True:
            yield self.make()
            due += 1.0 / self.rate
            await asyncio.sleep(max(0.0, due - time.monotonic()))


class Build:
    def __init__(self, args):
        self.args = args
        self.coordinator = ProtoCoordinator(args.workers, args.request_timeout)
        self.running = set()
        self.failures = 0

    async def _one(self, ctx):
        response = await self.coordinator.run_request(ctx)
        if response["exit_code"] != 0:
            self.failures += 1

    async def report(self):
        while True:
            await asyncio.sleep(5.0)
            log.info("%d actions done, %d pending, %d failed", self.coordinator.completed,
                     len(self.coordinator.pending), self.failures)

    async def run(self):
        await self.coordinator.start()
        reporter = asyncio.create_task(self.report())
        end = time.monotonic() + self.args.duration
        try:
            async for ctx in ActionSource(self.args.rate, self.args.seed):
                task = asyncio.create_task(self._one(ctx))
                self.running.add(task)
                task.add_done_callback(self.running.discard)
                if len(self.running) > 40:
                    await asyncio.wait(self.running, return_when=asyncio.FIRST_COMPLETED)
                if time.monotonic() > end:
                    break
        finally:
            reporter.cancel()
            self.coordinator.stop()


def main():
    args = parse_args()
    logging.basicConfig(stream=sys.stdout, level=logging.INFO,
                        format="%(asctime)s %(name)s %(message)s")
    asyncio.run(Build(args).run())


if __name__ == "__main__":
    main()
