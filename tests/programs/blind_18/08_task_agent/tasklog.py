import queue
import threading


class LoggingThread(threading.Thread):
    """Sends what a task prints to the hub, in the background."""

    def __init__(self, client, task, maxsize=40, batch=32):
        super().__init__(name="task-log", daemon=True)
        self.client = client
        self.task = task
        self.batch = batch
        self.queue = queue.Queue(maxsize=maxsize)
        self.stopping = threading.Event()

    def write(self, text):
        if text:
            self.queue.put(text)

    def read(self):
        parts = [self.queue.get(timeout=0.5)]
        while len(parts) < self.batch:
            try:
                parts.append(self.queue.get_nowait())
            except queue.Empty:
                break
        return "".join(parts)

    def run(self):
        while not (self.stopping.is_set() and self.queue.empty()):
            try:
                text = self.read()
            except queue.Empty:
                continue
            self.client.upload_task_log(self.task, text)

    def stop(self):
        self.stopping.set()
        self.join()


class TaskOutput:
    """File-like stand-in for sys.stdout of a task."""

    encoding = "utf-8"

    def __init__(self, thread):
        self.thread = thread

    def write(self, text):
        self.thread.write(text)
        return len(text)

    def flush(self):
        pass

    def isatty(self):
        return False
