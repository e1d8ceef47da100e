"""Client side of the feature exchanges: batches go to a stage server and come back transformed."""
import logging
import os
import queue
from concurrent.futures import ThreadPoolExecutor

log = logging.getLogger("flight.client")

executor = ThreadPoolExecutor(max_workers=int(os.environ.get("FLIGHT_THREADS", "6")), thread_name_prefix="flight")

_END = object()


def queue_to_gen(q):
    while True:
        item = q.get()
        if item is _END:
            return
        if isinstance(item, BaseException):
            raise item
        yield item


class StageClient:
    def __init__(self, name, connect):
        self.name = name
        self._connect = connect

    def exchange(self, batches):
        """Lazily streams `batches` through the stage, yields the transformed batches in order."""
        out = queue.Queue(maxsize=8)
        conn = self._connect()

        def do_writes():
            n = 0
            for batch in batches:
                conn.send(batch)
                n += 1
            conn.send(None)
            return n

        def do_reads():
            n = 0
            while True:
                batch = conn.recv()
                if batch is None:
                    return n
                out.put(batch)
                n += 1

        def do_writes_reads():
            try:
                writes = executor.submit(do_writes)
                reads = executor.submit(do_reads)
                written, read = writes.result(), reads.result()
                if written != read:
                    raise RuntimeError(f"{self.name}: wrote {written}, read {read}")
                out.put(_END)
            except BaseException as exc:
                out.put(exc)
            finally:
                conn.close()

        executor.submit(do_writes_reads)
        return queue_to_gen(out)
