"""One leader per node, elected with a lock that the kernel releases when its holder dies."""
import abc
import asyncio
import fcntl
import logging
import os
import time

log = logging.getLogger("failover")


class FailoverLockError(Exception):
    pass


class FailoverLock(abc.ABC):
    @abc.abstractmethod
    async def acquire(self, engine_id, timeout=None): ...

    @abc.abstractmethod
    async def release(self): ...


class FlockFailoverLock(FailoverLock):
    def __init__(self, path, poll_interval=0.2):
        self.path = path
        self.poll_interval = poll_interval
        self.fd = None

    async def acquire(self, engine_id, timeout=None):
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        started, reported = time.monotonic(), time.monotonic()
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                pass
            now = time.monotonic()
            if timeout is not None and now - started > timeout:
                os.close(fd)
                raise FailoverLockError(f"{engine_id} could not get {self.path} in {timeout} s")
            if now - reported > 20:
                log.info("%s is standing by (%.0f s)", engine_id, now - started)
                reported = now
            await asyncio.sleep(self.poll_interval)
        os.ftruncate(fd, 0)
        os.write(fd, engine_id.encode())
        self.fd = fd

    async def release(self):
        if self.fd is not None:
            fcntl.flock(self.fd, fcntl.LOCK_UN)
            os.close(self.fd)
            self.fd = None
