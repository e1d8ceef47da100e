"""Telemetry is collected in a queue and handed to a sender in batches."""
import collections
import json
import os
import time


class AsynchronousQueue:
    def __init__(self, sender, max_queue_length=500):
        self.sender = sender
        self.max_queue_length = max_queue_length
        self._queue = collections.deque()

    def put(self, item):
        self._queue.append(item)
        if len(self._queue) >= self.max_queue_length:
            self.flush()

    def flush(self):
        batch = []
        while self._queue:
            batch.append(self._queue.popleft())
        if batch:
            self.sender.send(batch)


class FileSender:
    """Writes the size of each batch; the agent on the host ships the real thing."""

    def __init__(self, path):
        self.path = path
        self.sent = 0

    def send(self, batch):
        self.sent += len(batch)
        with open(self.path, "a") as fh:
            fh.write("%d %d\n" % (time.time(), sum(len(json.dumps(b)) for b in batch)))


class TelemetryContext:
    def __init__(self, instrumentation_key):
        self.instrumentation_key = instrumentation_key
        self.device = {"id": os.uname().nodename, "os": os.uname().sysname, "pid": os.getpid()}
        self.properties = {}


class TelemetryChannel:
    def __init__(self, context, queue):
        self.context, self.queue = context, queue

    def write(self, data, record_time):
        envelope = {"iKey": self.context.instrumentation_key, "time": record_time,
                    "tags": dict(self.context.device), "data": data}
        self.queue.put(envelope)
