"""Logging of all processes goes to one collector, which keeps counts per logger and level."""
import collections
import logging
import logging.handlers
import os
import pickle
import multiprocessing as mp
import socket


def get_logger(name, level=logging.DEBUG):
    """A logger that sends its records to the collector of this run."""
    logger = logging.getLogger(name)
    logger.setLevel(level)
    logger.propagate = False
    handler = logging.handlers.DatagramHandler("127.0.0.1", int(os.environ["RENDER_LOG_PORT"]))
    handler.setLevel(level)
    logger.addHandler(handler)
    return logger


class LogCollector:
    def __init__(self):
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.bind(("127.0.0.1", 0))
        self.port = self.sock.getsockname()[1]
        self.process = mp.Process(target=self._run, name="log-collector", daemon=True)

    def start(self):
        self.process.start()
        self.sock.close()

    def stop(self):
        self.process.terminate()
        self.process.join()

    def _run(self):
        counts = collections.Counter()
        last = {}
        while True:
            packet = self.sock.recv(65536)
            record = pickle.loads(packet[4:])
            key = (record["name"], record["levelname"])
            counts[key] += 1
            last[key] = record["msg"]
