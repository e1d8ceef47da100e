"""Hands the expected outputs of the problems to the tests, line by line."""
import json
import os
import socketserver
import sys


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        problem = int(self.rfile.readline())
        cases = [{"n": n, "expected": sum(range(n + 1)) + problem} for n in range(1, 40)]
        self.wfile.write(json.dumps(cases).encode() + b"\n")


def main():
    with socketserver.TCPServer(("127.0.0.1", 0), Handler) as server:
        path = sys.argv[1]
        with open(path + ".part", "w") as f:
            f.write(str(server.server_address[1]))
        os.replace(path + ".part", path)
        server.serve_forever()


if __name__ == "__main__":
    main()
