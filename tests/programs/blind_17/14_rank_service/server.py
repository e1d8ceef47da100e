import json
import logging
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch

from scorer import Scorer

log = logging.getLogger("server")


class Metrics:
    def __init__(self):
        self.lock = threading.Lock()
        self.count = 0
        self.model_seconds = 0.0

    def observe(self, seconds):
        with self.lock:
            self.count += 1
            self.model_seconds += seconds

    def report_forever(self, interval):
        seen = 0
        while True:
            time.sleep(interval)
            with self.lock:
                count, spent = self.count, self.model_seconds
                self.model_seconds = 0.0
            n = count - seen
            seen = count
            log.info("%.1f req/s, model %.2f ms per request", n / interval, 1000 * spent / max(n, 1))


class RankHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "rank-service/0.4"
    scorer = None
    metrics = None

    def log_message(self, fmt, *args):
        log.debug(fmt, *args)

    def do_GET(self):
        if self.path == "/healthz":
            self.respond(200, {"status": "ok"})
        else:
            self.respond(404, {"error": "unknown path"})

    def do_POST(self):
        length = int(self.headers.get("Content-Length", 0))
        try:
            payload = json.loads(self.rfile.read(length))
            begin = time.perf_counter()
            scores = self.scorer.score(payload["rows"])
            self.metrics.observe(time.perf_counter() - begin)
        except (ValueError, KeyError) as exc:
            self.respond(400, {"error": str(exc)})
            return
        self.respond(200, {"scores": [round(s, 5) for s in scores]})

    def respond(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def run_server(host, port_pipe, report_every):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    RankHandler.scorer = Scorer()
    RankHandler.metrics = Metrics()
    httpd = ThreadingHTTPServer((host, 0), RankHandler)
    httpd.daemon_threads = True
    threading.Thread(target=RankHandler.metrics.report_forever, args=(report_every,), name="metrics",
                     daemon=True).start()
    port_pipe.send(httpd.server_address[1])
    httpd.serve_forever()
