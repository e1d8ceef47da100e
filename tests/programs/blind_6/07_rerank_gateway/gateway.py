import asyncio
import json
import logging
from threading import Thread

log = logging.getLogger("gateway")


class Gateway:
    def __init__(self, conn, max_passages=16):
        self.conn = conn
        self.max_passages = max_passages
        self.cond = asyncio.Lock()
        self.cache = {}
        self.served = 0

    async def score(self, query, passages):
        loop = asyncio.get_running_loop()
        async with self.cond:
            self.conn.send((query, passages))
            return await loop.run_in_executor(None, self.conn.recv)

    def score_long(self, query, passages, loop):
        scores = []
        for i in range(0, len(passages), self.max_passages):
            part = passages[i : i + self.max_passages]
            future = asyncio.run_coroutine_threadsafe(self.score(query, part), loop)
            scores.extend(future.result())
        self.cache[query] = scores

    async def rank(self, query, passages):
        if len(passages) <= self.max_passages:
            return await self.score(query, passages)
        if query not in self.cache:
            loop = asyncio.get_running_loop()
            t = Thread(target=self.score_long, args=(query, passages, loop), name="long-query")
            t.start()
            t.join()
        return self.cache[query]

    async def handle(self, reader, writer):
        async for line in reader:
            req = json.loads(line)
            scores = await self.rank(req["query"], req["passages"])
            writer.write((json.dumps({"id": req["id"], "scores": scores}) + "\n").encode())
            await writer.drain()
            self.served += 1
            if self.served % 20 == 0:
                log.info("%d requests served", self.served)
        writer.close()
