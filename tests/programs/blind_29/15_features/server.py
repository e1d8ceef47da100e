"""Feature server: one process, many client connections."""
import logging
import resource
import select
import socket
import struct

import numpy as np

from shards import ShardStore

log = logging.getLogger("server")


class FeatureServer:
    def __init__(self, name, folder):
        self.name = name
        self.store = ShardStore(folder)
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=16)
        self.clients = {}

    @property
    def port(self):
        return self.listener.getsockname()[1]

    def _read(self, conn):
        data = conn.recv(1 << 16)
        if not data:
            del self.clients[conn]
            conn.close()
            return
        buffer = self.clients[conn] + data
        while len(buffer) >= 4:
            (count,) = struct.unpack_from("<I", buffer)
            if len(buffer) < 4 + 8 * count:
                break
            keys = np.frombuffer(buffer, dtype="<i8", count=count, offset=4)
            conn.sendall(self.store.rows(keys).tobytes())
            buffer = buffer[4 + 8 * count:]
        self.clients[conn] = buffer

    def serve(self):
        while True:
            ready, _, _ = select.select([self.listener, *self.clients], [], [], 1.0)
            for sock in ready:
                if sock is self.listener:
                    conn, _ = self.listener.accept()
                    conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    self.clients[conn] = b""
                else:
                    self._read(sock)


def run_server(name, folder, ports):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(8192, hard), hard))
    server = FeatureServer(name, folder)
    ports.put((name, server.port))
    log.info("serving %s on port %d, limit of open files %d", folder, server.port, min(8192, hard))
    server.serve()
