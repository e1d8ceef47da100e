import logging
import socket
import time

log = logging.getLogger("client")


def burst_forever(addr, pause, n=60):
    time.sleep(2)
    while True:
        t0 = time.time()
        with socket.create_connection(addr) as s, s.makefile("rw") as f:
            for i in range(n):
                f.write(f"{t0}-{i}\n")
                f.flush()
                f.readline()
        log.info("burst of %d requests in %.1fs", n, time.time() - t0)
        time.sleep(pause)
