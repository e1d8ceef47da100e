"""Small request/reply channels between processes, backed by a multiprocessing manager."""
import queue


class Closed(Exception):
    pass


class Mailbox:
    """A queue that several processes may put to and get from, and that can be closed."""

    def __init__(self, manager, name):
        self.name = name
        self._cond = manager.Condition()
        self._items = manager.Queue()
        self._closed = manager.Event()

    def put(self, item):
        with self._cond:
            if self._closed.is_set():
                raise Closed(self.name)
            self._items.put(item)
            self._cond.notify()

    def get(self, poll=0.2):
        with self._cond:
            # short waits, so that Ctrl-C gets through
            while not self._cond.wait(poll):
                pass
            try:
                return self._items.get(block=False)
            except queue.Empty:
                raise Closed(self.name) from None

    def close(self):
        with self._cond:
            self._closed.set()
            self._cond.notify_all()
