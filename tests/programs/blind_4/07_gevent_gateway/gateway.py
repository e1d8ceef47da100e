from gevent import monkey

monkey.patch_all()

import argparse
import json
import logging
import multiprocessing
import socket

import gevent
from gevent.pywsgi import WSGIServer

from backend import serve_model

log = logging.getLogger("gateway")


class ConfigService:
    """Hands the model configuration to backends that ask for it on a local port."""

    def __init__(self, config):
        self.config = config
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]

    def run(self):
        while True:
            conn, peer = self.listener.accept()
            gevent.spawn(self.handle, conn, peer)

    def handle(self, conn, peer):
        with conn:
            name = conn.recv(256).decode().strip()
            log.info("config for %s sent to %s:%d", name, *peer)
            conn.sendall(json.dumps(self.config).encode() + b"\n")


class Gateway:
    def __init__(self, args):
        self.ctx = multiprocessing.get_context("spawn")
        self.config = ConfigService({"dim": args.dim, "classes": 10, "seed": 7})
        self.requests, self.replies = self.ctx.Queue(), self.ctx.Queue()
        self.ready = self.ctx.Event()
        self.http = WSGIServer(("127.0.0.1", args.port), self.application, log=None)

    def start(self):
        gevent.spawn(self.config.run)
        self.process = self.ctx.Process(
            target=serve_model, args=(self.config.port, self.requests, self.replies, self.ready), daemon=True)
        self.process.start()
        log.info("backend pid %d started, waiting for the model", self.process.pid)
        self.ready.wait()
        log.info("backend ready, serving on %s", self.http.address)
        self.http.serve_forever()

    def application(self, environ, start_response):
        self.requests.put(environ["PATH_INFO"])
        body = json.dumps(self.replies.get()).encode()
        start_response("200 OK", [("Content-Type", "application/json")])
        return [body]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--port", type=int, default=0)
    p.add_argument("--dim", type=int, default=64)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    Gateway(args).start()


if __name__ == "__main__":
    main()
