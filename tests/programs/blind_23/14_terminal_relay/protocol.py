"""Framing between the session daemons and the dashboard backend."""
import json
import socket
import struct

HEADER = struct.Struct("!IBI")          # session, kind, length
OUTPUT, RESIZE, ACK = 1, 2, 3


class FrameSocket:
    def __init__(self, sock):
        self.sock = sock

    @classmethod
    def connect(cls, address, timeout=30.0):
        return cls(socket.create_connection(address, timeout=timeout))

    def send(self, session, kind, payload):
        body = json.dumps(payload).encode()
        self.sock.sendall(HEADER.pack(session, kind, len(body)))
        self.sock.sendall(body)

    def receive(self):
        header = self._exactly(HEADER.size)
        if header is None:
            return None
        session, kind, length = HEADER.unpack(header)
        return session, kind, json.loads(self._exactly(length))

    def _exactly(self, count):
        chunks = []
        while count:
            chunk = self.sock.recv(count)
            if not chunk:
                return None
            chunks.append(chunk)
            count -= len(chunk)
        return b"".join(chunks)

    def close(self):
        self.sock.close()
