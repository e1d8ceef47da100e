"""Framed pickles over a pair of Unix sockets between the engine and a worker."""
import pickle
import select
import socket
import struct

HEADER = struct.Struct("!I")


class MessageQueue:
    def __init__(self, sock):
        self.sock = sock
        self._poller = select.poll()
        self._poller.register(sock, select.POLLIN)

    @staticmethod
    def pair():
        return socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)

    def enqueue(self, obj):
        data = pickle.dumps(obj, protocol=pickle.HIGHEST_PROTOCOL)
        self.sock.sendall(HEADER.pack(len(data)) + data)

    def dequeue(self, timeout=None):
        timeout_ms = None if timeout is None else int(timeout * 1000)
        if not self._poller.poll(timeout_ms):
            raise TimeoutError
        (size,) = HEADER.unpack(self._read(HEADER.size))
        return pickle.loads(self._read(size))

    def _read(self, size):
        parts = []
        while size:
            part = self.sock.recv(min(size, 1 << 20))
            if not part:
                raise EOFError("peer has closed the queue")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)
