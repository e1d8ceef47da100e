"""Blocking request/reply transport used by the extractors and the index server."""
import socket
import struct

import numpy as np

CHUNK = 4096
REPLY = struct.Struct("!II")


def read_request(conn):
    """Read one request body from ``conn``; empty bytes when the peer is gone."""
    parts = []
    while True:
        data = conn.recv(CHUNK)
        if not data:
            break
        parts.append(data)
        if len(data) < CHUNK:
            break
    return b"".join(parts)


def decode_rows(body, width):
    return np.frombuffer(body, dtype=np.float32).reshape(-1, width)


def read_exact(conn, size):
    buf = bytearray()
    while len(buf) < size:
        data = conn.recv(size - len(buf))
        if not data:
            raise ConnectionError("index server closed the connection")
        buf += data
    return bytes(buf)


class IndexClient:
    def __init__(self, port):
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def add(self, rows):
        """Store the rows of one clip and return (first id, rows in the index)."""
        self.sock.sendall(np.ascontiguousarray(rows, dtype=np.float32).tobytes())
        return REPLY.unpack(read_exact(self.sock, REPLY.size))

    def close(self):
        self.sock.close()
