import logging
import logging.handlers
import multiprocessing as mp
import socket


class ArchiveHandler(logging.Handler):
    """Sends every line to the site archive and waits for the acknowledgement."""

    def __init__(self, port):
        super().__init__()
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.acks = self.sock.makefile("rb")

    def emit(self, record):
        self.sock.sendall(self.format(record).encode() + b"\n")
        self.acks.readline()


def listener(queue, port):
    handler = ArchiveHandler(port)
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
    while True:
        record = queue.get()
        if record is None:
            break
        handler.handle(record)


def start_logging(port):
    queue = mp.Queue()
    proc = mp.Process(target=listener, args=(queue, port), name="log-listener", daemon=True)
    proc.start()
    root = logging.getLogger()
    root.setLevel(logging.DEBUG)
    root.addHandler(logging.handlers.QueueHandler(queue))
    return queue, proc
