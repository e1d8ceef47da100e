"""Segments of experience on their way from the actors to the learner."""
import io

import torch


class SegmentWriter:
    def __init__(self, conn):
        self.conn = conn

    def publish(self, segment: dict):
        payload = io.BytesIO()
        torch.save(segment, payload)
        self.conn.send_bytes(payload.getbuffer())


class SegmentReader:
    def __init__(self, conns):
        self.conns = conns
        self.received = 0

    def poll(self):
        from multiprocessing.connection import wait

        for conn in wait(self.conns):
            data = conn.recv_bytes()
            self.received += 1
            yield torch.load(io.BytesIO(data), weights_only=True)
