"""Log file of the extraction: records are formatted at once and written by a thread, so slow disks do not stall the work."""
import logging
import queue
import threading


class ThreadedFileHandler(logging.Handler):
    def __init__(self, filename, capacity=256):
        super().__init__()
        self.stream = open(filename, "a", buffering=1)
        self.records = queue.Queue(maxsize=capacity)
        self.thread = threading.Thread(target=self._write_loop, name="log-writer", daemon=True)
        self.thread.start()

    def emit(self, record):
        self.records.put(self.format(record))

    def _write_loop(self):
        while True:
            line = self.records.get()
            if line is None:
                break
            self.stream.write(line + "\n")
            self.records.task_done()

    def close(self):
        self.records.put(None)
        self.thread.join()
        self.stream.close()
        super().close()


def setup_logging(filename):
    root = logging.getLogger()
    root.setLevel(logging.DEBUG)
    console = logging.StreamHandler()
    console.setLevel(logging.INFO)
    console.setFormatter(logging.Formatter("%(asctime)s %(processName)s %(message)s"))
    handler = ThreadedFileHandler(filename)
    handler.setFormatter(logging.Formatter("%(asctime)s %(processName)s %(name)s %(levelname)s %(message)s"))
    root.addHandler(console)
    root.addHandler(handler)
    return handler
