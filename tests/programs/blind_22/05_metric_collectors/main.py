"""Metrics daemon: collector processes -> shared metric queue -> carbon handler."""
import argparse
import logging
import multiprocessing as mp
import signal
import socket
import time

from collectors import COLLECTORS, collector_main
from handlers import handler_main

log = logging.getLogger("server")


class MetricsServer:
    def __init__(self, args):
        self.args = args
        self.ctx = mp.get_context("fork")
        self.manager = self.ctx.Manager()
        self.metric_queue = self.manager.Queue()
        self.processes = {}

    def start_handler(self, address):
        proc = self.ctx.Process(target=handler_main, name="handler", daemon=True,
                                args=(self.metric_queue, address, self.args.relay_timeout))
        proc.start()
        self.processes["handler"] = proc

    def start_collectors(self):
        for seed, cls in enumerate(COLLECTORS):
            proc = self.ctx.Process(target=collector_main, name=cls.name, daemon=True,
                                    args=(cls, seed, self.metric_queue, self.args.host))
            proc.start()
            self.processes[cls.name] = proc

    def watch(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(5)
            dead = [n for n, p in self.processes.items() if not p.is_alive()]
            for name in dead:
                log.error("%s is gone", name)
            log.info("%d processes running", len(self.processes) - len(dead))

    def stop(self):
        for proc in self.processes.values():
            proc.terminate()
            proc.join()
        self.manager.shutdown()


def open_relay(backlog):
    """Relay endpoint of this host; the relay itself is started by another unit."""
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    sock.listen(backlog)
    return sock


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--host", default="node17")
    p.add_argument("--relay-timeout", type=float, default=5.0)
    p.add_argument("--run-for", type=float, default=120)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    signal.signal(signal.SIGTERM, signal.SIG_DFL)

    server = MetricsServer(args)
    relay = open_relay(128)
    server.start_handler(relay.getsockname())
    server.start_collectors()
    log.info("collecting for %.0f s", args.run_for)
    server.watch(args.run_for)
    server.stop()


if __name__ == "__main__":
    main()
