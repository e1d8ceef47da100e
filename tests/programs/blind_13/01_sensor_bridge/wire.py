"""Socket client without its own thread: the owner calls loop_read() and loop_write()
whenever the socket is ready, and is told through the callbacks what to watch."""
import collections
import json
import socket
import threading


class WireClient:
    def __init__(self, client_id):
        self.client_id = client_id
        self.on_socket_open = None
        self.on_socket_register_write = None
        self.on_socket_unregister_write = None
        self.on_connect = None
        self.on_message = None
        self._out = collections.deque()
        self._out_lock = threading.Lock()
        self._registered_write = False
        self._buffer = b""
        self.sock = None

    def connect(self, host, port):
        self.sock = socket.create_connection((host, port), timeout=10)
        self.sock.setblocking(False)
        if self.on_socket_open:
            self.on_socket_open(self, self.sock)
        self._queue({"type": "connect", "client": self.client_id})

    def subscribe(self, topic):
        self._queue({"type": "subscribe", "topic": topic})

    def publish(self, topic, payload):
        self._queue({"type": "publish", "topic": topic, "payload": payload})

    def _queue(self, packet):
        with self._out_lock:
            self._out.append(json.dumps(packet).encode() + b"\n")
            if self._registered_write:
                return
            self._registered_write = True
        self.on_socket_register_write(self, self.sock)

    def loop_write(self):
        while True:
            with self._out_lock:
                if not self._out:
                    self._registered_write = False
                    break
                data = self._out.popleft()
            sent = self.sock.send(data)
            if sent < len(data):
                with self._out_lock:
                    self._out.appendleft(data[sent:])
                return
        self.on_socket_unregister_write(self, self.sock)

    def loop_read(self):
        chunk = self.sock.recv(65536)
        if not chunk:
            raise ConnectionError("broker closed the connection")
        self._buffer += chunk
        *lines, self._buffer = self._buffer.split(b"\n")
        for line in lines:
            msg = json.loads(line)
            if msg["type"] == "connack":
                self.on_connect(self)
            elif msg["type"] == "publish":
                self.on_message(self, msg["topic"], msg["payload"])
