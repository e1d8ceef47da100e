"""Datagram transport of the robot's nodes; every node owns one local UDP port."""
import pickle
import socket

MAX_DATAGRAM = 60_000


class Node:
    def __init__(self, name, port=0):
        self.name = name
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.bind(("127.0.0.1", port))
        self.sock.setblocking(False)

    @property
    def address(self):
        return self.sock.getsockname()

    def send(self, address, kind, header, blob=b""):
        self.sock.sendto(pickle.dumps((kind, header, blob[:MAX_DATAGRAM])), address)

    def poll(self):
        """All datagrams waiting at the port."""
        while True:
            try:
                data, sender = self.sock.recvfrom(65_535)
            except (BlockingIOError, ConnectionRefusedError):
                return
            yield sender, pickle.loads(data)
