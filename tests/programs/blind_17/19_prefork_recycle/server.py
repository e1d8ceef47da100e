"""Preforking server: a master that keeps a fixed number of workers alive."""
import logging
import os
import random
import signal
import socket
import struct
import time

import torch

log = logging.getLogger("server")


def read_exact(conn, n):
    data = b""
    while len(data) < n:
        part = conn.recv(n - len(data))
        if not part:
            raise ConnectionError("peer closed")
        data += part
    return data


class Worker:
    def __init__(self, slot, listener, app, max_requests):
        self.slot, self.listener, self.app = slot, listener, app
        self.max_requests = max_requests
        self.served = 0
        self.stopping = False

    def stop(self, signum, frame):
        self.stopping = True

    def handle(self, conn):
        with conn:
            (length,) = struct.unpack("!I", read_exact(conn, 4))
            reply = self.app(read_exact(conn, length))
            conn.sendall(struct.pack("!I", len(reply)) + reply)

    def run(self):
        signal.signal(signal.SIGTERM, self.stop)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        torch.set_num_threads(1)
        self.listener.settimeout(1.0)
        while not self.stopping and self.served < self.max_requests:
            try:
                conn, _ = self.listener.accept()
            except socket.timeout:
                continue
            conn.settimeout(10)
            try:
                self.handle(conn)
            except (OSError, ValueError) as exc:
                log.warning("worker %d: %s", self.slot, exc)
            self.served += 1
        if self.served >= self.max_requests:
            log.info("...The work of process %d is done after %d requests. Seeya!", os.getpid(), self.served)


class Master:
    def __init__(self, app, host, workers, max_requests, jitter, seed=0):
        self.app = app
        self.workers, self.max_requests, self.jitter = workers, max_requests, jitter
        self.rng = random.Random(seed)
        self.listener = socket.create_server((host, 0), backlog=64)
        self.address = self.listener.getsockname()
        self.slots = {}
        self.respawned = 0
        self.quit = False

    def spawn(self, slot):
        limit = self.max_requests + self.rng.randint(0, self.jitter)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                Worker(slot, self.listener, self.app, limit).run()
                code = 0
            finally:
                os._exit(code)
        self.slots[pid] = slot
        return pid

    def reap(self):
        while self.slots:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            slot = self.slots.pop(pid)
            code = os.waitstatus_to_exitcode(status)
            if self.quit:
                continue
            if code != 0:
                log.error("worker %d (pid %d) died with status %d :( trying respawn ...", slot, pid, code)
            new = self.spawn(slot)
            self.respawned += 1
            log.info("respawned worker %d (new pid: %d), %d respawns so far", slot, new, self.respawned)

    def terminate(self, signum=None, frame=None):
        self.quit = True

    def run(self, ready):
        signal.signal(signal.SIGTERM, self.terminate)
        for slot in range(1, self.workers + 1):
            log.info("spawned worker %d (pid: %d)", slot, self.spawn(slot))
        ready(self.address)
        while not self.quit:
            self.reap()
            time.sleep(0.05)
        for pid in list(self.slots):
            os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + 5
        while self.slots and time.monotonic() < deadline:
            self.reap()
            time.sleep(0.05)
