"""Local pool of out-of-process workers with future based calls."""
import concurrent.futures
import itertools
import logging
import multiprocessing as mp
import threading

from compile_worker import serve

log = logging.getLogger("worker_manager")


class WorkerStub:
    """Client side of one worker process. Every call returns a Future."""

    def __init__(self, worker_id, seed, walltime):
        ctx = mp.get_context("spawn")
        self.worker_id = worker_id
        self._conn, child = ctx.Pipe()
        self._proc = ctx.Process(target=serve, args=(worker_id, child, seed, walltime),
                                 name=f"compile-{worker_id}", daemon=True)
        self._proc.start()
        child.close()
        self._ids = itertools.count()
        self._lock = threading.Lock()
        self._calls = {}
        self._pump = threading.Thread(target=self._message_pump, daemon=True,
                                      name=f"pump-{worker_id}")
        self._pump.start()

    def _message_pump(self):
        while True:
            try:
                call_id, ok, value = self._conn.recv()
            except EOFError:
                log.warning("worker %d went away", self.worker_id)
                self._fail_all()
                return
            with self._lock:
                future = self._calls.pop(call_id)
                if ok:
                    future.set_result(value)
                else:
                    future.set_exception(RuntimeError(value))

    def _fail_all(self):
        with self._lock:
            pending, self._calls = self._calls, {}
        for future in pending.values():
            future.set_exception(ConnectionError(f"worker {self.worker_id} died"))

    def remote_call(self, method, *args):
        future = concurrent.futures.Future()
        with self._lock:
            call_id = next(self._ids)
            self._calls[call_id] = future
            self._conn.send((call_id, method, args))
        return future

    def load(self):
        with self._lock:
            return len(self._calls)

    def shutdown(self):
        self._conn.send(None)


class LocalWorkerPool:
    def __init__(self, count, seed, walltime):
        self.stubs = [WorkerStub(i, seed, walltime) for i in range(count)]

    def broadcast(self, method, *args):
        futures = [stub.remote_call(method, *args) for stub in self.stubs]
        return [f.result() for f in futures]

    def least_loaded(self):
        return min(self.stubs, key=lambda s: s.load())

    def close(self):
        for stub in self.stubs:
            stub.shutdown()
