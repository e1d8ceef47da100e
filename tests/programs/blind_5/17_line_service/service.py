import json
import logging
import socketserver
import threading

import torch
from torch import nn

log = logging.getLogger("service")


class Scorer:
    def __init__(self):
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2)).eval()
        self.lock = threading.Lock()
        self.requests = 0

    def __call__(self, rows):
        with self.lock, torch.no_grad():
            self.requests += len(rows)
            return self.net(torch.tensor(rows)).tolist()


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            rows = json.loads(line)
            self.wfile.write((json.dumps(self.server.scorer(rows)) + "\n").encode())
        log.info("batch client finished, %d rows so far", self.server.scorer.requests)


def serve(conn):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s service %(message)s")
    torch.set_num_threads(1)
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        server.scorer = Scorer()
        conn.send(server.server_address)
        server.serve_forever()
