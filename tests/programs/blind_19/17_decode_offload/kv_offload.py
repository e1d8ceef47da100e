"""Moves the KV cache of finished requests from the decode slots to the host store."""
import logging
import threading
from dataclasses import dataclass, field

import torch

log = logging.getLogger("offload")


@dataclass
class Request:
    rid: str
    tokens: int
    max_new: int
    generated: int = 0
    slot: int = -1
    output: list = field(default_factory=list)

    @property
    def finished(self):
        return self.generated >= self.max_new


class SlotPool:
    """Preallocated decode slots, one a running request."""

    def __init__(self, slots, layers, heads, max_tokens, head_dim):
        self.kv = torch.zeros(slots, 2, layers, heads, max_tokens, head_dim)
        self.free = list(range(slots))

    def acquire(self):
        return self.free.pop() if self.free else -1

    def release(self, slot):
        self.free.append(slot)


class DecodeKVCacheOffloadManager:
    def __init__(self, pool, writer):
        self.pool = pool
        self.writer = writer
        self.ongoing_offload = {}
        self.next_ack = 0
        self.lock = threading.Lock()

    def offload(self, req):
        """Copies the request's KV to host memory and queues it for the store."""
        with self.lock:
            ack_id, self.next_ack = self.next_ack, self.next_ack + 1
            used = min(req.tokens + req.generated, self.pool.kv.size(4))
            host = self.pool.kv[req.slot, ..., :used, :].clone()
            self.ongoing_offload[ack_id] = (req, host)
        self.writer.submit(ack_id, req.rid, host)
        return ack_id

    def check_offload_progress(self, requests):
        """Called by the scheduler; finishes requests whose transfer is acknowledged."""
        done = []
        for ack_id, rid in self.writer.drain_acks():
            if rid not in requests:
                continue
            with self.lock:
                req, _ = self.ongoing_offload.pop(ack_id)
            self.pool.release(req.slot)
            done.append(req)
        return done
