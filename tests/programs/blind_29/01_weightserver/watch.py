import logging
import os
import signal
import socket
import time
from multiprocessing import Process

log = logging.getLogger("watch")


class ServiceWatch(Process):
    """Stops the job at once when the weight service goes away."""

    def __init__(self, address, grace):
        super().__init__(name="service-watch", daemon=True)
        self.address, self.grace = address, grace

    def run(self):
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
        time.sleep(self.grace)
        with socket.create_connection(self.address, timeout=5) as sock:
            sock.settimeout(None)
            log.info("weight service is up, watching it")
            while sock.recv(4096):
                pass
        log.error("weight service went away, stopping the job")
        os.kill(os.getppid(), signal.SIGTERM)
