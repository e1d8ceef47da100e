"""A local origin that serves images, one connection per request."""
import os
import socketserver

HEADER = b"HTTP/1.0 200 OK\r\nContent-Type: image/raw\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
SIDE = 480


class ImageHandler(socketserver.StreamRequestHandler):
    timeout = 10
    body = os.urandom(SIDE * SIDE)

    def handle(self):
        request = self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        if request.startswith(b"GET /"):
            self.wfile.write(HEADER % len(self.body) + self.body)


class Origin(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


def make_origin():
    return Origin(("127.0.0.1", 0), ImageHandler)
