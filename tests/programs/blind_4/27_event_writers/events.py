"""Event files written by a background thread, one per run."""
import os
import queue
import struct
import threading
import zlib


class _EventLoop(threading.Thread):
    def __init__(self, q, fh, flush_secs):
        super().__init__(daemon=True)
        self.q, self.fh, self.flush_secs = q, fh, flush_secs
        self.block = bytearray(b"\0" * (256 * 1024))

    def run(self):
        used = 0
        while True:
            event = self.q.get()
            payload = repr(event).encode()
            record = struct.pack("!II", len(payload), zlib.crc32(payload)) + payload
            if used + len(record) > len(self.block):
                self.fh.write(self.block[:used])
                used = 0
            self.block[used:used + len(record)] = record
            used += len(record)
            if self.q.empty() and not self.fh.closed:
                self.fh.write(self.block[:used])
                self.fh.flush()
                used = 0
            self.q.task_done()


class EventWriter:
    def __init__(self, logdir, run, flush_secs=120):
        self.fh = open(os.path.join(logdir, f"events.{run}"), "ab")
        self.q = queue.Queue(1000)
        self.worker = _EventLoop(self.q, self.fh, flush_secs)
        self.worker.start()

    def add_scalar(self, tag, value, step):
        self.q.put((tag, float(value), step))

    def close(self):
        self.q.join()
        self.fh.close()
