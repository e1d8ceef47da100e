import pickle
import selectors
import socket
import struct

import torch


def send_msg(sock, obj):
    data = pickle.dumps(obj)
    sock.sendall(struct.pack("!I", len(data)) + data)


def recv_msg(sock):
    head = b""
    while len(head) < 4:
        part = sock.recv(4 - len(head))
        if not part:
            return None
        head += part
    n = struct.unpack("!I", head)[0]
    data = b""
    while len(data) < n:
        data += sock.recv(n - len(data))
    return pickle.loads(data)


class ParameterServer:
    def __init__(self, dim):
        self.weights = torch.zeros(dim)
        self.sessions = {}
        self.sel = selectors.DefaultSelector()
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.sel.register(self.listener, selectors.EVENT_READ)
        self.port = self.listener.getsockname()[1]
        self.requests = 0

    def handle(self, sock):
        msg = recv_msg(sock)
        if msg is None:
            self.sel.unregister(sock)
            return
        if msg["op"] == "push":
            self.weights -= 0.01 * torch.from_numpy(msg["grad"])
        send_msg(sock, {"weights": self.weights.numpy()})
        self.requests += 1

    def serve(self):
        while True:
            for key, _ in self.sel.select():
                if key.fileobj is self.listener:
                    conn, addr = self.listener.accept()
                    self.sessions[addr] = conn
                    self.sel.register(conn, selectors.EVENT_READ)
                else:
                    self.handle(key.fileobj)


def server_main(port_conn, dim):
    torch.set_num_threads(1)
    ps = ParameterServer(dim)
    port_conn.send(ps.port)
    ps.serve()
