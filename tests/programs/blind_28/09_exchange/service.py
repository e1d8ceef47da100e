"""The serving process: accepts connections and runs the plan of each request."""
import logging
import threading
from multiprocessing.connection import Listener

import torch

from exchange import build_stages, run_plan

log = logging.getLogger("service")


class Service:
    def __init__(self, width: int):
        self.servers = build_stages(width)
        self.listener = Listener(("127.0.0.1", 0), backlog=16)
        self.served = 0

    @property
    def address(self):
        return self.listener.address

    def handle(self, conn):
        while True:
            try:
                request = conn.recv()
            except EOFError:
                return
            rows = torch.from_numpy(request["rows"])
            parts = list(run_plan(self.servers, request["plan"], rows.split(request["batch"])))
            conn.send(torch.cat(parts).numpy())
            self.served += 1
            if self.served % 100 == 0:
                log.info("served %d requests, %d stage calls", self.served, sum(s.calls for s in self.servers.values()))

    def serve_forever(self):
        while True:
            conn = self.listener.accept()
            threading.Thread(target=self.handle, args=(conn,), daemon=True).start()


def run_service(width: int, ready):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s[%(process)d] %(message)s")
    torch.set_num_threads(1)
    service = Service(width)
    ready.send(service.address)
    service.serve_forever()
