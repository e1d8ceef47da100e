import atexit
import logging
import queue
from concurrent.futures import ThreadPoolExecutor

log = logging.getLogger("robot")


class HardwareController:
    """Runs pipetting commands one after another on a worker thread of its own."""

    def __init__(self):
        self._inbox = queue.Queue()
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="hardware")
        self._loop = self._executor.submit(self._serve)
        self.completed = 0

    def _serve(self):
        while True:
            item = self._inbox.get()
            if item is None:
                log.info("controller stopped after %d commands", self.completed)
                return
            fn, args, done = item
            done(fn(*args))
            self.completed += 1

    def call(self, fn, *args):
        reply = queue.Queue(1)
        self._inbox.put((fn, args, reply.put))
        return reply.get()

    def close(self):
        self._inbox.put(None)
        self._loop.result(timeout=10)


_controller = None


def get_controller():
    global _controller
    if _controller is None:
        _controller = HardwareController()
        atexit.register(_controller.close)
    return _controller
