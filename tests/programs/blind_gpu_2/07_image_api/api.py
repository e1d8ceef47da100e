import itertools
import logging
import queue
import threading

log = logging.getLogger("api")


class ClientDisconnect(Exception):
    pass


class ImageApi:
    """Handlers of /v1/images/generations."""

    def __init__(self, executor, steps, poll=0.002):
        self.executor, self.steps, self.poll = executor, steps, poll
        self.ids = itertools.count(1)
        self.active = {}
        self.lock = threading.Lock()
        self.finished = self.aborted = 0

    def generations(self, seed, connection):
        request_id = f"img-{next(self.ids)}"
        with self.lock:
            self.active[request_id] = connection
        try:
            self.executor.submit(request_id, seed, self.steps)
            image = self._wait(request_id, connection)
            self.finished += 1
            return {"id": request_id, "size": image.shape[-2:], "mean": float(image.mean())}
        except ClientDisconnect:
            self.aborted += 1
            return None
        finally:
            with self.lock:
                self.active.pop(request_id, None)

    def _wait(self, request_id, connection):
        while True:
            if connection.closed.is_set():
                raise ClientDisconnect(request_id)
            try:
                return self.executor.wait_output_ready(request_id, self.poll)
            except queue.Empty:
                continue
