import collections
import logging
import os
import threading
import time

import torch
from torch import nn

log = logging.getLogger("scorer")


class FrameScorer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim, 128), nn.ReLU(), nn.Linear(128, 1))

    @torch.no_grad()
    def forward(self, frames):
        return self.net(frames).mean().item()


def serve(conn, dim, lookup_s, max_seconds):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s", force=True)
    limit = threading.Timer(max_seconds, os._exit, (0,))
    limit.daemon = True
    limit.start()
    torch.set_num_threads(1)
    model = FrameScorer(dim)
    inbox = collections.deque()
    ready = threading.Condition()

    def receive():
        while True:
            try:
                request = conn.recv()
            except EOFError:
                os._exit(0)
            with ready:
                inbox.append((time.monotonic(), request))
                ready.notify()

    threading.Thread(target=receive, name="receive", daemon=True).start()
    served = expired = 0
    while True:
        with ready:
            while not inbox:
                ready.wait()
            arrived, (ident, method, payload, timeout) = inbox.popleft()
        if time.monotonic() - arrived > timeout:
            expired += 1
            continue
        time.sleep(lookup_s)  # index lookup on the shared disk
        frames = torch.frombuffer(bytearray(payload), dtype=torch.float32).view(-1, dim)
        conn.send((ident, model(frames)))
        served += 1
        if served % 200 == 0:
            log.info("served %d, skipped %d past their deadline", served, expired)
