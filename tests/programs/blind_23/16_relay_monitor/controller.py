"""Talks to the relay over its control port and remembers what does not change."""
import logging
import socket

log = logging.getLogger("controller")


class ControllerError(Exception):
    pass


class OperationFailed(ControllerError):
    def __init__(self, code, message):
        super().__init__(f"{code} {message}")
        self.code, self.message = code, message


class Controller:
    CACHEABLE = ("address", "fingerprint", "version", "exit-policy")

    def __init__(self, address):
        self.sock = socket.create_connection(address, timeout=20)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.sock.makefile("rb")
        self._cache = {}

    def get_info(self, key, default=None):
        """Value of a GETINFO key, from the cache where it cannot change."""
        cached = self._cache.get(key)
        if isinstance(cached, Exception):
            raise cached
        if cached is not None:
            return cached
        try:
            value = self._ask(key)
        except OperationFailed as exc:
            if key in self.CACHEABLE:
                self._cache[key] = exc
            raise
        if key in self.CACHEABLE:
            self._cache[key] = value
        return value

    def _ask(self, key):
        self.sock.sendall(f"GETINFO {key}\r\n".encode())
        status, _, rest = self.file.readline().decode().rstrip().partition(" ")
        if status != "250":
            raise OperationFailed(status, rest)
        return rest

    def bandwidth_samples(self, count):
        self.sock.sendall(f"GETINFO bw-event-cache/{count}\r\n".encode())
        length = int(self.file.readline())
        return self.file.read(length)
