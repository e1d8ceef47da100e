import io

import numpy as np


def pack(arrays):
    buf = io.BytesIO()
    np.savez(buf, **arrays)
    return buf.getvalue()


def unpack(blob):
    with np.load(io.BytesIO(blob)) as z:
        return {k: z[k] for k in z.files}


def send_message(sock, arrays):
    sock.sendall(pack(arrays))


def recv_message(sock, bufsize=1 << 16):
    chunks = []
    while True:
        data = sock.recv(bufsize)
        if not data:
            break
        chunks.append(data)
    return unpack(b"".join(chunks))
