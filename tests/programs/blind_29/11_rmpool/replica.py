"""One reward model replica behind a TCP socket."""
import json
import logging
import socketserver
import threading

import torch
from torch import nn

log = logging.getLogger("replica")


class RewardModel(nn.Module):
    def __init__(self, vocab, dim=64):
        super().__init__()
        self.embed = nn.EmbeddingBag(vocab, dim)
        self.score = nn.Sequential(nn.Linear(dim, dim), nn.Tanh(), nn.Linear(dim, 1))

    @torch.inference_mode()
    def forward(self, sequences):
        flat = torch.tensor([t for s in sequences for t in s])
        offsets = torch.tensor([0] + [len(s) for s in sequences[:-1]]).cumsum(0)
        return self.score(self.embed(flat, offsets)).squeeze(-1)


class ScoreHandler(socketserver.StreamRequestHandler):
    def handle(self):
        request = json.loads(self.rfile.readline())
        scores = self.server.model(request["sequences"]).tolist()
        self.wfile.write(json.dumps({"scores": scores}).encode() + b"\n")


class ReplicaServer(socketserver.TCPServer):
    allow_reuse_address = True
    request_queue_size = 32


def serve_replica(name, vocab, ports, stop):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with ReplicaServer(("127.0.0.1", 0), ScoreHandler) as server:
        server.model = RewardModel(vocab).eval()
        ports.put((name, server.server_address[1]))
        log.info("%s serves on port %d", name, server.server_address[1])
        threading.Thread(target=lambda: (stop.wait(), server.shutdown()), daemon=True).start()
        server.serve_forever(poll_interval=0.2)
    log.info("%s drained and closed", name)
