"""Catalog client that honours Retry-After."""
import asyncio
import json
import logging
import random

log = logging.getLogger("client")


class CatalogClient:
    def __init__(self, port, concurrency):
        self.port = port
        self.slots = asyncio.Semaphore(concurrency)
        self.retries = 0

    async def _request(self, sku):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(f"GET /items/{sku} HTTP/1.1\r\nHost: catalog\r\n\r\n".encode())
            status = int((await reader.readline()).split()[1])
            headers = {}
            while line := (await reader.readline()).strip():
                key, value = line.decode().split(":", 1)
                headers[key.lower()] = value.strip()
            body = await reader.readexactly(int(headers["content-length"]))
            return status, headers, body
        finally:
            writer.close()

    async def fetch(self, sku):
        async with self.slots:
            while True:
                status, headers, body = await self._request(sku)
                if status != 429:
                    return json.loads(body)
                self.retries += 1
                await asyncio.sleep(float(headers["retry-after"]) + random.uniform(0, 0.5))


def sync_main(port, skus, concurrency, results):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")

    async def run():
        client = CatalogClient(port, concurrency)
        for i, fut in enumerate(asyncio.as_completed([client.fetch(s) for s in skus]), 1):
            results.put(await fut)
            if i % 20 == 0:
                log.info("%d/%d items, %d retries", i, len(skus), client.retries)

    asyncio.run(run())
    results.put(None)
