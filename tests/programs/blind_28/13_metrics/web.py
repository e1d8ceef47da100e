"""A pre-forked web worker that embeds documents."""
import json
import logging
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch
from torch import nn

import metrics

log = logging.getLogger("web")


class Embedder(nn.Module):
    def __init__(self, vocabulary: int = 5000, width: int = 64):
        super().__init__()
        self.table = nn.EmbeddingBag(vocabulary, width)
        self.head = nn.Linear(width, width)
        self.vocabulary = vocabulary

    @torch.inference_mode()
    def embed(self, text: str) -> list[float]:
        ids = torch.tensor([[sum(word.encode()) * 31 % self.vocabulary for word in text.split()]])
        return self.head(self.table(ids))[0, :8].tolist()


class MetricsMiddleware:
    def __init__(self, handler):
        self.handler = handler

    def __call__(self, request):
        method, path = request.command, request.path
        started = time.perf_counter()
        status, body, model_seconds = self.handler(request)
        metrics.REQUESTS.labels(method, path, str(status)).inc()
        metrics.MODEL_TIME.labels(method, path).observe(model_seconds)
        metrics.IN_BYTES.labels(method, path).observe(request.length)
        metrics.LATENCY.labels(method, path).observe(time.perf_counter() - started)
        return status, body


class Application:
    def __init__(self):
        torch.manual_seed(3)
        self.model = Embedder().eval()

    def __call__(self, request):
        parts = request.path.strip("/").split("/")
        if len(parts) != 4 or parts[:2] != ["v1", "documents"] or parts[3] != "embedding":
            return 404, {"detail": "not found"}, 0.0
        started = time.perf_counter()
        vector = self.model.embed(request.body.decode())
        return 200, {"document": parts[2], "embedding": vector}, time.perf_counter() - started


def make_handler(app):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            self.length = int(self.headers.get("Content-Length", 0))
            self.body = self.rfile.read(self.length)
            status, body = app(self)
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format, *args):
            pass

    Handler.wbufsize = -1
    return Handler


def run_worker(index: int, ready):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s[%(process)d] %(message)s")
    torch.set_num_threads(1)
    server = ThreadingHTTPServer(("127.0.0.1", 0), make_handler(MetricsMiddleware(Application())))
    server.daemon_threads = True
    ready.send(server.server_address)
    import threading

    threading.Thread(target=server.serve_forever, name="acceptor", daemon=True).start()
    while True:
        time.sleep(10)
        figures = metrics.totals()
        log.info("worker %d: %d requests, %.2f ms on average", index, figures["requests"], figures["mean_ms"])
