"""Server-side batching: samples of concurrent requests are put through the model together."""
import logging
import threading
import time

import torch

log = logging.getLogger("batcher")


class DynamicBatcher:
    def __init__(self, predictor, max_batch_size=8, batch_interval=0.01):
        self.predictor = predictor
        self.max_batch_size = max_batch_size
        self.batch_interval = batch_interval
        self.samples = {}
        self.predictions = {}
        self.ready = threading.Condition()
        self.batches = 0
        self.handled = 0
        threading.Thread(target=self._batch_engine, name="batch-engine", daemon=True).start()

    def _batch_engine(self):
        while True:
            deadline = time.monotonic() + self.batch_interval
            while len(self.samples) < self.max_batch_size and time.monotonic() < deadline:
                time.sleep(0.001)
            if not self.samples:
                continue
            try:
                self._run_batch()
            except Exception:
                log.exception("batch failed")
                with self.ready:
                    self.predictions.update({tid: None for tid in self.samples})
                    self.samples = {}
                    self.ready.notify_all()

    def _run_batch(self):
        thread_ids = list(self.samples)
        batch = torch.stack([self.samples[tid] for tid in thread_ids])
        outputs = self.predictor(batch)
        with self.ready:
            self.predictions.update(zip(thread_ids, outputs))
            self.samples = {}
            self.batches += 1
            self.handled += len(thread_ids)
            self.ready.notify_all()

    def predict(self, sample):
        tid = threading.get_ident()
        with self.ready:
            self.samples[tid] = sample
            self.ready.wait_for(lambda: tid in self.predictions)
            return self.predictions.pop(tid)
