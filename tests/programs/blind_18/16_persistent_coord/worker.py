"""Persistent build worker: reads length-prefixed requests on stdin, answers on stdout."""
import hashlib
import json
import struct
import sys
import time


def read_exact(stream, n):
    data = stream.read(n)
    if data is None or len(data) < n:
        sys.exit(0)
    return data


def main():
    src, dst = sys.stdin.buffer, sys.stdout.buffer
    while True:
        header_len, body_len = struct.unpack("!II", read_exact(src, 8))
        header = json.loads(read_exact(src, header_len))
        body = read_exact(src, body_len)
        time.sleep(0.03)
        digest = hashlib.sha256(body).hexdigest()
        output = body[: len(body) // 4]
        reply = json.dumps({"id": header["id"], "exit_code": 0, "digest": digest}).encode()
        dst.write(struct.pack("!II", len(reply), len(output)) + reply + output)
        dst.flush()


if __name__ == "__main__":
    main()
