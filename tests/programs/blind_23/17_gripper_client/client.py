import itertools
import logging
import time
from dataclasses import dataclass, field

import torch

log = logging.getLogger("client")


@dataclass
class Request:
    sequence: int
    cloud: torch.Tensor
    callback: object
    sent: float = field(default_factory=time.monotonic)


class ServiceClient:
    """Asynchronous client of one service."""

    def __init__(self, node, service, address):
        self.node, self.service, self.address = node, service, address
        self._sequence = itertools.count()
        self._pending = {}
        self.answered = 0
        self.late = 0

    def call_async(self, cloud, callback):
        request = Request(next(self._sequence), cloud, callback)
        self._pending[request.sequence] = request
        preview = cloud[:: max(1, len(cloud) // 1000)].to(torch.float16).numpy().tobytes()
        self.node.send(self.address, "request", {"service": self.service, "sequence": request.sequence}, preview)
        return request

    def spin(self):
        for _, (kind, header, _) in self.node.poll():
            if kind != "response":
                continue
            request = self._pending.pop(header["sequence"], None)
            if request is not None:
                self.answered += 1
                request.callback(request, header)

    def is_late(self, request, limit):
        return request.sequence in self._pending and time.monotonic() - request.sent > limit
