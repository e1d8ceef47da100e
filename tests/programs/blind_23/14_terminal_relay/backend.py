import collections
import logging
import multiprocessing as mp
import os
import socketserver
import threading
import time

from protocol import ACK, OUTPUT, FrameSocket

log = logging.getLogger("backend")


class Screen:
    """Scrollback of one terminal."""

    def __init__(self, height=200):
        self.lines = collections.deque(maxlen=height)
        self.frames = 0

    def apply(self, payload):
        for line in payload["data"].splitlines():
            self.lines.append(line)
        self.frames += 1


class SessionHandler(socketserver.BaseRequestHandler):
    def handle(self):
        frames = FrameSocket(self.request)
        while True:
            message = frames.receive()
            if message is None:
                return
            session, kind, payload = message
            screen = self.server.screens[session]
            if kind == OUTPUT:
                screen.apply(payload)
            frames.send(session, ACK, {"seq": payload["seq"]})


class Backend(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, address):
        super().__init__(address, SessionHandler)
        self.screens = collections.defaultdict(Screen)


def serve(pipe, lifetime):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    threading.Timer(lifetime, os._exit, args=(0,)).start()
    backend = Backend(("127.0.0.1", 0))
    pipe.send(backend.server_address)

    def report():
        while True:
            time.sleep(10)
            log.info("frames applied: %s", {s: screen.frames for s, screen in sorted(backend.screens.items())})
    threading.Thread(target=report, daemon=True).start()
    backend.serve_forever()


def start(lifetime):
    here, there = mp.Pipe()
    process = mp.Process(target=serve, args=(there, lifetime), name="backend", daemon=True)
    process.start()
    return process, here.recv()
