"""Scoring service on a unix socket: a dispatcher, two scoring processes, requests in bursts from the day's batch."""
import argparse
import asyncio
import json
import logging
import os
import tempfile
from concurrent.futures import ProcessPoolExecutor

import numpy as np

log = logging.getLogger("scoring")
_weights = None


def load_model(dim):
    global _weights
    _weights = np.random.default_rng(0).normal(size=dim)


def score(rows):
    return (1 / (1 + np.exp(-np.asarray(rows) @ _weights))).tolist()


class Service:
    def __init__(self, path, dim):
        self.path = path
        self.pool = ProcessPoolExecutor(2, initializer=load_model, initargs=(dim,))
        self.queue = asyncio.Queue(maxsize=100)

    async def consume(self):
        while True:
            rows, reply = await self.queue.get()
            reply.set_result(await asyncio.get_running_loop().run_in_executor(self.pool, score, rows))
            self.queue.task_done()

    async def handle(self, reader, writer):
        while line := await reader.readline():
            reply = asyncio.get_running_loop().create_future()
            await self.queue.put((json.loads(line), reply))
            writer.write(json.dumps(await reply).encode() + b"\n")
            await writer.drain()
        writer.close()

    async def start(self):
        self.consumers = [asyncio.create_task(self.consume()) for _ in range(2)]
        return await asyncio.start_unix_server(self.handle, self.path, limit=2 ** 22)


async def batch_client(path, dim, bursts, every):
    reader, writer = await asyncio.open_unix_connection(path, limit=2 ** 22)
    rng = np.random.default_rng(1)
    for burst in range(bursts):
        for _ in range(30):
            writer.write(json.dumps(rng.normal(size=(50, dim)).round(3).tolist()).encode() + b"\n")
            scores = json.loads(await reader.readline())
        log.info("burst %d scored, last mean %.3f; next in %.0f s", burst, float(np.mean(scores)), every)
        await asyncio.sleep(every)
    writer.close()


async def amain(args):
    with tempfile.TemporaryDirectory(prefix="scoring-") as tmp:
        service = Service(os.path.join(tmp, "score.sock"), args.dim)
        server = await service.start()
        async with server:
            await batch_client(service.path, args.dim, args.bursts, args.every)
        service.pool.shutdown()


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--dim", type=int, default=40)
    p.add_argument("--bursts", type=int, default=4)
    p.add_argument("--every", type=float, default=25)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    asyncio.run(amain(args))


if __name__ == "__main__":
    main()
