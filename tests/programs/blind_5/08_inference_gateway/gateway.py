import argparse
import asyncio
import json
import logging
import multiprocessing as mp
import random
import socket
import time

from backend import ModelBackend, PredictionCache

log = logging.getLogger("gateway")


def simulate_users(port, users, seed):
    rng = random.Random(seed)
    sock = socket.create_connection(("127.0.0.1", port))
    stream = sock.makefile("rw")
    n = 0
    while True:
        user = rng.randrange(min(users, 20 + n // 4))
        stream.write(json.dumps({"user": user}) + "\n")
        stream.flush()
        json.loads(stream.readline())
        n += 1
        time.sleep(0.02)


class Gateway:
    def __init__(self, args):
        self.args = args
        self.served = 0

    async def handle(self, reader, writer):
        while line := await reader.readline():
            user = json.loads(line)["user"]
            scores = self.cache.get(user)
            writer.write((json.dumps({"user": user, "scores": scores}) + "\n").encode())
            await writer.drain()
            self.served += 1

    async def report(self):
        while True:
            await asyncio.sleep(1)
            log.info("served %d requests, %d users cached", self.served, len(self.cache.values))

    def warm_up(self):
        for user in range(25):
            self.cache.get(user)
        log.info("warm-up finished")

    async def run(self):
        loop = asyncio.get_running_loop()
        self.cache = PredictionCache(ModelBackend(loop))
        await loop.run_in_executor(None, self.warm_up)
        server = await asyncio.start_server(self.handle, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        for seed in range(self.args.clients):
            mp.Process(target=simulate_users, args=(port, self.args.users, seed), daemon=True).start()
        await self.report()


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--clients", type=int, default=2)
    p.add_argument("--users", type=int, default=400)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    asyncio.run(Gateway(p.parse_args()).run())
