"""Scoring server: one thread per connection, all of them share the batcher."""
import logging
import multiprocessing as mp
import threading
from multiprocessing.connection import Listener

import torch
from torch import nn

from batcher import DynamicBatcher

log = logging.getLogger("server")
AUTHKEY = b"scorer"


class ScoringModel(nn.Module):
    def __init__(self, vocab=4000, dim=192, layers=4):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        layer = nn.TransformerEncoderLayer(dim, 6, dim * 4, batch_first=True, dropout=0.0)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(dim, 1)

    @torch.inference_mode()
    def forward(self, tokens):
        return self.head(self.encoder(self.embed(tokens)).mean(1)).squeeze(-1)


class ScoringServer(mp.Process):
    def __init__(self, address_conn, walltime):
        super().__init__(name="scoring-server", daemon=True)
        self.address_conn, self.walltime = address_conn, walltime

    def handle(self, conn):
        try:
            while True:
                request = conn.recv()
                score = self.batcher.predict(torch.tensor(request["tokens"]))
                conn.send({"id": request["id"], "score": None if score is None else float(score)})
        except EOFError:
            pass
        finally:
            conn.close()

    def run(self):
        from main import walltime_limit
        walltime_limit(self.walltime)
        torch.set_num_threads(1)
        torch.manual_seed(0)
        self.batcher = DynamicBatcher(ScoringModel().eval())
        with Listener(("127.0.0.1", 0), authkey=AUTHKEY) as listener:
            self.address_conn.send(listener.address)
            while True:
                conn = listener.accept()
                threading.Thread(target=self.handle, args=(conn,), daemon=True).start()
