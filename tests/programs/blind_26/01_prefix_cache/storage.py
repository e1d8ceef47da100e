"""Third tier of the prefix cache: KV pages in files, read back by a thread per rank."""
import logging
import os
import queue
import threading
import time

import numpy as np

log = logging.getLogger("storage")


class PageStore:
    """Pages of past prompts, one file per prefix hash."""

    def __init__(self, root, page_shape):
        self.root = root
        self.page_shape = page_shape

    def path(self, prefix):
        return os.path.join(self.root, f"{prefix:08x}.npy")

    def write(self, prefix, pages):
        tmp = self.path(prefix) + f".{os.getpid()}"
        with open(tmp, "wb") as f:
            np.save(f, pages)
        os.replace(tmp, self.path(prefix))

    def contains(self, prefix):
        return os.path.exists(self.path(prefix))

    def read(self, prefix):
        return np.load(self.path(prefix))


class PrefetchOperation:
    def __init__(self, request_id, prefix, budget_s):
        self.request_id = request_id
        self.prefix = prefix
        self.deadline = time.monotonic() + budget_s
        self.pages = []
        self.finished = False

    def expired(self):
        return time.monotonic() > self.deadline


class PrefetchThread(threading.Thread):
    def __init__(self, store, pages_per_read=4):
        super().__init__(daemon=True, name="prefetch")
        self.store = store
        self.pages_per_read = pages_per_read
        self.inbox = queue.Queue()

    def submit(self, operation):
        self.inbox.put(operation)

    def run(self):
        while True:
            operation = self.inbox.get()
            try:
                pages = self.store.read(operation.prefix)
                for start in range(0, len(pages), self.pages_per_read):
                    operation.pages.append(pages[start:start + self.pages_per_read])
                    time.sleep(0.01)
            except OSError as err:
                log.warning("request %d: no pages for %08x (%s)", operation.request_id, operation.prefix, err)
            operation.finished = True
