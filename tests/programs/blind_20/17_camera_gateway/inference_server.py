"""Model instances that take requests from a queue, with a queue delay policy."""
import logging
import queue
import signal
import time

import torch
from torch import nn

STATUS_OK = 0
STATUS_TIMEOUT = 4
log = logging.getLogger("inference_server")


class Detector(nn.Module):
    def __init__(self, classes=12):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 16, 5, stride=4, padding=2), nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(),
            nn.AdaptiveAvgPool2d(4))
        self.head = nn.Linear(32 * 16, classes)

    def forward(self, x):
        return self.head(self.features(x).flatten(1))


class ModelInstance:
    def __init__(self, requests, responses, queue_delay, min_latency):
        torch.set_num_threads(1)
        torch.manual_seed(0)
        self.model = Detector().eval()
        self.requests = requests
        self.responses = responses
        self.queue_delay = queue_delay
        self.min_latency = min_latency

    @torch.no_grad()
    def infer(self, frame):
        t0 = time.monotonic()
        out = self.model(torch.from_numpy(frame)[None]).softmax(-1)[0]
        time.sleep(max(0.0, self.min_latency - (time.monotonic() - t0)))
        return out.numpy()

    def serve(self):
        while True:
            try:
                request_id, queued_at, frame = self.requests.get(timeout=5)
            except queue.Empty:
                continue
            if time.monotonic() - queued_at > self.queue_delay:
                self.responses.put((request_id, STATUS_TIMEOUT, None))
            else:
                self.responses.put((request_id, STATUS_OK, self.infer(frame)))


def serve_model(index, requests, responses, queue_delay, min_latency, walltime):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    signal.alarm(walltime)
    log.info("model instance %d is up", index)
    ModelInstance(requests, responses, queue_delay, min_latency).serve()
