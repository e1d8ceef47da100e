"""HTTP mirror on 127.0.0.1 that serves one corpus file at a limited rate."""
import random
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def make_corpus(size):
    rng = random.Random(4)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 9))) for _ in range(5000)]
    block = " ".join(rng.choices(words, k=20000)).encode() + b"\n"
    return (block * (size // len(block) + 1))[:size]


def run_mirror(pipe, size_mb, kbps):
    corpus = make_corpus(int(size_mb * 2**20))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Length", str(len(corpus)))
            self.end_headers()
            piece = int(kbps * 1024 * 0.2)
            due = time.monotonic()
            for i in range(0, len(corpus), piece):
                self.wfile.write(corpus[i:i + piece])
                due += 0.2
                time.sleep(max(0.0, due - time.monotonic()))

        def log_message(self, *a):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    pipe.send(f"http://127.0.0.1:{server.server_port}/corpus.txt")
    server.serve_forever()
