"""Client side of the inference server: asynchronous requests with a completion callback."""
import dataclasses
import itertools
import threading
import time

import numpy as np

from inference_server import STATUS_OK


class InferError(Exception):
    pass


class InferTimeout(InferError):
    pass


@dataclasses.dataclass
class AsyncRequest:
    request_id: int
    frame: np.ndarray
    callback: object
    sent_at: float
    status: int = -1
    output: object = None


class InferContext:
    def __init__(self, requests, responses):
        self._requests_q = requests
        self._responses_q = responses
        self._ids = itertools.count(1)
        self._lock = threading.Lock()
        self._inflight = {}
        self._thread = threading.Thread(target=self._complete, name="infer-completion", daemon=True)
        self._thread.start()

    def async_run(self, callback, frame):
        request = AsyncRequest(next(self._ids), frame, callback, time.monotonic())
        with self._lock:
            self._inflight[request.request_id] = request
        self._requests_q.put((request.request_id, request.sent_at, frame))
        return request.request_id

    def _complete(self):
        while True:
            request_id, status, output = self._responses_q.get()
            with self._lock:
                request = self._inflight[request_id]
            request.status, request.output = status, output
            request.callback(self, request_id)

    def get_async_run_results(self, request_id):
        with self._lock:
            request = self._inflight[request_id]
            if request.status != STATUS_OK:
                raise InferTimeout(f"request {request_id} timed out in the queue "
                                   f"after {time.monotonic() - request.sent_at:.3f}s")
            del self._inflight[request_id]
            return request.output, time.monotonic() - request.sent_at
