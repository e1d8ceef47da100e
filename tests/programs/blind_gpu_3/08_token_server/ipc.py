"""Message channel between the API frontend and the engine (JSON over a stream socket)."""
import json
import socket
import threading


class Channel:
    MAX_MESSAGE = 1 << 18

    def __init__(self, sock):
        self.sock = sock
        self._send_lock = threading.Lock()

    @classmethod
    def pair(cls):
        a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        return cls(a), cls(b)

    def send(self, message):
        data = json.dumps(message).encode()
        with self._send_lock:
            self.sock.sendall(data)

    def recv(self):
        data = self.sock.recv(self.MAX_MESSAGE)
        if not data:
            raise EOFError("channel closed")
        return json.loads(data)
