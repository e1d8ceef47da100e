"""Length-prefixed text messages over TCP: 4 bytes big-endian length, then UTF-8."""
import struct

HEADER = struct.Struct(">I")


def recv_exact(sock, n):
    chunks = []
    while n:
        chunk = sock.recv(min(n, 65536))
        if not chunk:
            raise EOFError("peer closed")
        chunks.append(chunk)
        n -= len(chunk)
    return b"".join(chunks)


def send_text(sock, text):
    sock.sendall(HEADER.pack(len(text)) + text.encode("utf-8"))


def recv_text(sock):
    (n,) = HEADER.unpack(recv_exact(sock, HEADER.size))
    return recv_exact(sock, n).decode("utf-8", errors="replace")
