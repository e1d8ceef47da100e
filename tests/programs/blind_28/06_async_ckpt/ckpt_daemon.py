"""Stand-alone writer: receives serialized states on stdin and writes them to disk."""
import argparse
import os
import socket
import struct
import sys
import time


def read_exact(stream, n):
    data = stream.read(n)
    if len(data) < n:
        sys.exit(0)
    return data


def probe_storage(root, rounds=4, settle=2.0):
    """The shared file system must show a file again after its attribute cache expired."""
    path = os.path.join(root, ".probe")
    for _ in range(rounds):
        with open(path, "wb") as f:
            f.write(os.urandom(1 << 20))
            os.fsync(f.fileno())
        time.sleep(settle)
        if os.path.getsize(path) != 1 << 20:
            sys.exit("storage is not consistent")
    os.unlink(path)


def join_group(args):
    if args.rank == 0:
        server = socket.create_server(("127.0.0.1", args.port))
        peers = [server.accept()[0] for _ in range(args.world_size - 1)]
        for peer in peers:
            peer.sendall(b"ok")
        probe_storage(args.root)
        return peers
    while True:
        try:
            conn = socket.create_connection(("127.0.0.1", args.port))
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
    conn.recv(2)
    return [conn]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--world-size", type=int, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--root", required=True)
    args = parser.parse_args()
    group = join_group(args)
    sys.stdout.buffer.write(b"R")
    sys.stdout.buffer.flush()
    stdin = sys.stdin.buffer
    while True:
        name_len, size = struct.unpack("<IQ", read_exact(stdin, 12))
        name = read_exact(stdin, name_len).decode()
        path = os.path.join(args.root, f"{name}-rank{args.rank}.pt")
        with open(path + ".tmp", "wb") as f:
            f.write(read_exact(stdin, size))
        os.replace(path + ".tmp", path)


if __name__ == "__main__":
    main()
