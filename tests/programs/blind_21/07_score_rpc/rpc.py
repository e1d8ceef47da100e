"""Tiny request/response layer over a multiprocessing connection; calls may come from any thread."""
import itertools
import logging
import threading

log = logging.getLogger("rpc")


class CallTimeout(Exception):
    pass


class Call:
    __slots__ = ("ident", "method", "payload", "done", "result")

    def __init__(self, ident, method, payload):
        self.ident, self.method, self.payload = ident, method, payload
        self.done = threading.Event()
        self.result = None


class RpcClient:
    def __init__(self, conn):
        self.conn = conn
        self.calls = {}
        self.ids = itertools.count(1)
        self.send_lock = threading.Lock()
        self.timeouts = 0
        threading.Thread(target=self._read, name="rpc-reader", daemon=True).start()

    def _read(self):
        while True:
            try:
                ident, result = self.conn.recv()
            except (EOFError, OSError):
                log.warning("connection closed")
                return
            call = self.calls.pop(ident, None)
            if call is None:
                log.debug("late answer %d", ident)
                continue
            call.result = result
            call.done.set()

    def call(self, method, payload, timeout):
        call = Call(next(self.ids), method, payload)
        self.calls[call.ident] = call
        with self.send_lock:
            self.conn.send((call.ident, method, payload, timeout))
        if not call.done.wait(timeout):
            self.timeouts += 1
            raise CallTimeout(f"{method} #{call.ident} after {timeout}s")
        return call.result
