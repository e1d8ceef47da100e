"""Media repository: a front end hands preview requests to media workers."""
import argparse
import logging
import multiprocessing as mp
import os
import threading
import time

from origin import make_origin
from previews import media_main

log = logging.getLogger("frontend")


def origin_main(server):
    server.serve_forever()


def memory_mb(pid):
    with open(f"/proc/{pid}/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


class Frontend:
    def __init__(self, args):
        self.args = args
        ctx = mp.get_context("fork")
        server = make_origin()
        self.origin = ctx.Process(target=origin_main, args=(server,), name="origin", daemon=True)
        self.origin.start()
        address = server.server_address
        server.socket.close()
        self.jobs = ctx.Queue(maxsize=8)
        self.results = ctx.Queue()
        self.workers = [ctx.Process(target=media_main, name=f"media-{i}", daemon=True,
                                    args=(i, address, self.jobs, self.results, args.collect_every))
                        for i in range(args.workers)]
        for w in self.workers:
            w.start()
        self.answered = 0

    def drain(self):
        while True:
            self.results.get()
            self.answered += 1

    def serve(self):
        threading.Thread(target=self.drain, name="drain", daemon=True).start()
        period = 1.0 / self.args.rate
        start = due = time.monotonic()
        report = start + 10
        number = 0
        while (now := time.monotonic()) - start < self.args.duration:
            self.jobs.put(number)
            number += 1
            if now > report:
                log.info("%d previews answered, workers at %s MB", self.answered,
                         ", ".join(f"{memory_mb(w.pid):.0f}" for w in self.workers))
                report += 10
            due += period
            time.sleep(max(0.0, due - time.monotonic()))
        for _ in self.workers:
            self.jobs.put(None)
        for w in self.workers:
            w.join(10)
        log.info("served %d previews", self.answered)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--rate", type=float, default=9.0, help="requests per second")
    p.add_argument("--collect-every", type=int, default=100)
    p.add_argument("--duration", type=float, default=120)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    Frontend(args).serve()


if __name__ == "__main__":
    main()
