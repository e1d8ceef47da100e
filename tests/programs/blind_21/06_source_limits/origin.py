"""Stand-in for the remote image stores: answers 'source key' with raw bytes."""
import os
import random
import socketserver
import threading


class Store(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            source, key = line.split()
            rng = random.Random(int(key))
            self.wfile.write(rng.randbytes(self.server.blob))
            self.wfile.flush()


def serve(blob, port_conn, max_seconds):
    limit = threading.Timer(max_seconds, os._exit, (0,))
    limit.daemon = True
    limit.start()
    socketserver.ThreadingTCPServer.daemon_threads = True
    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Store)
    server.blob = blob
    port_conn.send(server.server_address[1])
    server.serve_forever()
