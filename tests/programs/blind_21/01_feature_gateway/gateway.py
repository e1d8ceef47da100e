import asyncio
import json
import logging
import os
import threading

from pool import ConnectionPool, run

log = logging.getLogger("gateway")


class FeatureGateway:
    def __init__(self, db_path, pool_size):
        self.pool = ConnectionPool(db_path, pool_size)
        self.requests = 0

    async def start(self, port_conn):
        await self.pool.open()
        server = await asyncio.start_server(self.on_client, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        port_conn.send(port)
        log.info("gateway on port %d, %d connections", port, self.pool.size)
        async with server:
            await asyncio.gather(server.serve_forever(), self.report())

    async def report(self):
        while True:
            await asyncio.sleep(5)
            log.info("%d requests answered", self.requests)

    async def on_client(self, reader, writer):
        try:
            while line := await reader.readline():
                query = json.loads(line)
                reply = await self.lookup(query["user"], query["items"])
                writer.write(json.dumps(reply).encode() + b"\n")
                await writer.drain()
                self.requests += 1
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def lookup(self, user, items):
        marks = ",".join("?" * len(items))
        async with self.pool.acquire() as conn:
            rows = await run(
                conn, f"SELECT item, vec FROM features WHERE item IN ({marks})", items
            )
            profile = await self.profile(user)
        return {"profile": profile, "rows": {str(i): json.loads(v) for i, v in rows}}

    async def profile(self, user):
        async with self.pool.acquire() as conn:
            rows = await run(conn, "SELECT vec FROM users WHERE user = ?", (user,))
        return json.loads(rows[0][0])


def serve(db_path, pool_size, port_conn, max_seconds):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s", force=True)
    limit = threading.Timer(max_seconds, os._exit, (0,))
    limit.daemon = True
    limit.start()
    asyncio.run(FeatureGateway(db_path, pool_size).start(port_conn))
