import logging
import queue
import time

import torch
from torch import nn

log = logging.getLogger("engine")


class TextClassifier(nn.Module):
    def __init__(self, vocab=10000, width=384, layers=4, classes=20):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        layer = nn.TransformerEncoderLayer(width, 6, 4 * width, dropout=0.0, batch_first=True)
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.out = nn.Linear(width, classes)

    def forward(self, ids):
        return self.out(self.body(self.embed(ids)).mean(1))


class BatchAggregator:
    """Collects jobs from the model's queue into a batch."""

    def __init__(self, jobs, batch_size, max_batch_delay):
        self.jobs, self.batch_size, self.max_batch_delay = jobs, batch_size, max_batch_delay

    def next_batch(self):
        batch = [self.jobs.get()]
        deadline = time.monotonic() + self.max_batch_delay
        while len(batch) < self.batch_size:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                break
            try:
                batch.append(self.jobs.get(timeout=remaining))
            except queue.Empty:
                break
        return batch


class ModelWorker:
    def __init__(self, name, jobs, results, config, device):
        self.name, self.results, self.device = name, results, device
        self.aggregator = BatchAggregator(jobs, config["batch_size"], config["max_batch_delay"])
        self.model = TextClassifier().to(device).eval()
        self.compute_ms = 0.0
        self.batches = 0

    @torch.inference_mode()
    def predict(self, batch):
        started = time.monotonic()
        width = max(len(ids) for _, ids in batch)
        ids = torch.zeros(len(batch), width, dtype=torch.long)
        for row, (_, tokens) in zip(ids, batch):
            row[:len(tokens)] = torch.tensor(tokens)
        labels = self.model(ids.to(self.device)).argmax(-1).tolist()
        self.compute_ms += (time.monotonic() - started) * 1e3
        self.batches += 1
        return labels

    def loop(self):
        while True:
            batch = self.aggregator.next_batch()
            labels = self.predict(batch)
            for (request_id, _), label in zip(batch, labels):
                self.results.put((request_id, label))
            if self.batches % 10 == 0:
                log.info("%s: %d batches, last size %d, model time %.1f ms/batch", self.name,
                         self.batches, len(batch), self.compute_ms / self.batches)


def worker_main(name, jobs, results, config):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_num_threads(1)
    ModelWorker(name, jobs, results, config, device).loop()
