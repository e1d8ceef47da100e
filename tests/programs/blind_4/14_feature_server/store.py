import asyncio
import threading
import time


class Connection:
    def __init__(self, number):
        self.number = number

    def query(self, user):
        time.sleep(0.05)
        return {"user": user, "clicks": hash(user) % 97, "via": self.number}


def open_connection(number):
    time.sleep(0.2)
    return Connection(number)


class FeatureStore:
    """A lazily filled pool of blocking database connections."""

    def __init__(self, size):
        self.size = size
        self._idle = []
        self._opened = 0
        self._pool_lock = threading.Lock()

    async def _acquire(self):
        with self._pool_lock:
            if self._idle:
                return self._idle.pop()
            self._opened += 1
            return await asyncio.get_running_loop().run_in_executor(None, open_connection, self._opened)

    def _release(self, connection):
        with self._pool_lock:
            self._idle.append(connection)

    async def lookup(self, user):
        connection = await self._acquire()
        try:
            return await asyncio.get_running_loop().run_in_executor(None, connection.query, user)
        finally:
            self._release(connection)
