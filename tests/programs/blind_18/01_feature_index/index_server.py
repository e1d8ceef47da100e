import logging
import signal
import socket
import threading

import numpy as np

from wire import REPLY, decode_rows, read_request

log = logging.getLogger("index")


class FlatIndex:
    def __init__(self, width, reserve=4096):
        self.rows = np.zeros((reserve, width), dtype=np.float32)
        self.count = 0
        self.lock = threading.Lock()

    def add(self, rows):
        with self.lock:
            first = self.count
            need = first + len(rows)
            if need > len(self.rows):
                grown = np.zeros((max(need, 2 * len(self.rows)), self.rows.shape[1]), np.float32)
                grown[:first] = self.rows[:first]
                self.rows = grown
            norm = np.linalg.norm(rows, axis=1, keepdims=True)
            self.rows[first:need] = rows / np.maximum(norm, 1e-6)
            self.count = need
            return first, need


def handle(conn, peer, index, width):
    log.info("extractor connected from port %d", peer[1])
    with conn:
        while True:
            body = read_request(conn)
            if not body:
                log.info("extractor on port %d finished", peer[1])
                return
            first, total = index.add(decode_rows(body, width))
            conn.sendall(REPLY.pack(first, total))


def serve(listener, width, walltime):
    signal.alarm(walltime)
    index = FlatIndex(width)
    while True:
        conn, peer = listener.accept()
        conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=handle, args=(conn, peer, index, width),
                         name=f"conn-{peer[1]}", daemon=True).start()
