import itertools
import logging
import threading
from concurrent.futures import Future

import torch.multiprocessing as mp

from worker import serve

log = logging.getLogger("service")


class EmbeddingService:
    """Spreads requests over worker processes, each with a copy of the model."""

    def __init__(self, device, num_workers):
        ctx = mp.get_context("spawn")
        self.results = ctx.Queue()
        self.inboxes = [ctx.Queue() for _ in range(num_workers)]
        self.workers = [
            ctx.Process(target=serve, args=(i, device, inbox, self.results), daemon=True)
            for i, inbox in enumerate(self.inboxes)
        ]
        for w in self.workers:
            w.start()
        for _ in self.workers:
            _, worker_id, _ = self.results.get()
            log.info("worker %d is ready", worker_id)
        self.pending = {}
        self.lock = threading.Lock()
        self.ids = itertools.count()
        threading.Thread(target=self._dispatch, name="dispatch", daemon=True).start()

    def _dispatch(self):
        while True:
            _, request_id, vector = self.results.get()
            with self.lock:
                future = self.pending.pop(request_id)
            future.set_result(vector)

    def submit(self, text):
        future = Future()
        with self.lock:
            request_id = next(self.ids)
            self.pending[request_id] = future
        self.inboxes[request_id % len(self.inboxes)].put((request_id, text))
        return future

    def embed(self, text):
        return self.submit(text).result()
