"""Connection to a target board."""
import atexit
import logging
import socket
import struct
import threading

import numpy as np

log = logging.getLogger("connection")


class TargetError(Exception):
    pass


class TargetConnection:
    def __init__(self, host, port, timeout=10.0):
        self.host, self.port = host, port
        self._lock = threading.Lock()
        self._closed = False
        self._trace = None
        self._sock = socket.create_connection((host, port), timeout=timeout)
        self._file = self._sock.makefile("rb")
        atexit.register(self.close)

    def _request(self, line):
        with self._lock:
            if self._closed:
                raise TargetError("connection is closed")
            self._sock.sendall(line.encode() + b"\n")
            (n,) = struct.unpack("!I", self._file.read(4))
            return self._file.read(n)

    def uptime(self):
        return float(self._request("uptime").split()[0])

    def capture(self, nbytes):
        """Read the trace ring of the board; kept for later slicing with window()."""
        self._trace = np.frombuffer(self._request("capture %d" % nbytes), dtype=np.uint8)
        return len(self._trace)

    def window(self, start, length):
        if self._trace is None:
            raise TargetError("nothing captured yet")
        return self._trace[start:start + length]

    def close(self):
        with self._lock:
            if self._closed:
                return
            self._closed = True
            try:
                self._file.close()
                self._sock.close()
            except OSError as exc:
                log.debug("close: %s", exc)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()
