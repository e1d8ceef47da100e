"""The site archive: appends each line durably before acknowledging it."""
import os
import socketserver
import tempfile
import time


class Append(socketserver.StreamRequestHandler):
    def handle(self):
        with tempfile.NamedTemporaryFile(prefix="site-", suffix=".log") as out:
            for line in self.rfile:
                out.write(line)
                out.flush()
                os.fdatasync(out.fileno())
                time.sleep(0.02)
                self.wfile.write(b"ok\n")


def serve(conn):
    with socketserver.TCPServer(("127.0.0.1", 0), Append) as server:
        conn.send(server.server_address[1])
        server.serve_forever()
