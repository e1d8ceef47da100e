import asyncio
import contextlib
import sqlite3


class ConnectionPool:
    """Fixed-size pool of sqlite connections for use from one event loop."""

    def __init__(self, path: str, size: int):
        self.path = path
        self.size = size
        self._free: asyncio.Queue = asyncio.Queue()

    async def open(self):
        for _ in range(self.size):
            conn = sqlite3.connect(self.path, check_same_thread=False, timeout=10)
            conn.execute("PRAGMA journal_mode=WAL")
            self._free.put_nowait(conn)
        return self

    @contextlib.asynccontextmanager
    async def acquire(self):
        conn = await self._free.get()
        try:
            yield conn
        finally:
            self._free.put_nowait(conn)

    def close(self):
        while not self._free.empty():
            self._free.get_nowait().close()


async def run(conn, sql, args=()):
    loop = asyncio.get_running_loop()

    def _do():
        cur = conn.execute(sql, args)
        rows = cur.fetchall()
        conn.commit()
        return rows

    return await loop.run_in_executor(None, _do)
