"""Plain TCP transport for flat float32 parameter vectors."""
import socket

import numpy as np

BUFFER_SIZE = 4096


def send_vector(sock, vector):
    sock.sendall(np.ascontiguousarray(vector, dtype=np.float32).tobytes())


def recv_vector(sock):
    data = bytearray()
    while True:
        chunk = sock.recv(BUFFER_SIZE)
        if not chunk and not data:
            raise ConnectionError("peer closed the connection")
        data.extend(chunk)
        if len(chunk) < BUFFER_SIZE:
            break
    return np.frombuffer(bytes(data), dtype=np.float32)


def connect(port, retries=100):
    import time
    for _ in range(retries):
        try:
            return socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError:
            time.sleep(0.1)
    raise TimeoutError("server did not come up")
