"""Upload service in miniature: an intake process, a task worker, and the front that joins them."""
import argparse
import asyncio
import logging
import multiprocessing as mp
import os
import threading
import time

import numpy as np

log = logging.getLogger("front")


def work(conn, name):
    from docket import Worker
    from tasks import REGISTRY
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [{name}] %(message)s")

    async def run():
        await Worker(name, conn, REGISTRY).loop()
    asyncio.run(run())


def intake(out, rate, size, seed):
    """Plays the users: uploads of varying size at a steady rate."""
    rng = np.random.default_rng(seed)
    count, begun = 0, time.monotonic()
    while True:
        n = int(size * rng.uniform(0.8, 1.2))
        out.send((f"upload-{seed}-{count}", rng.bytes(n)))
        count += 1
        time.sleep(max(0.0, begun + count / rate - time.monotonic()))


class Front:
    def __init__(self, args):
        self.args = args
        ctx = mp.get_context("spawn")
        self.uploads, up_child = ctx.Pipe(duplex=False)
        self.worker_conn, worker_child = ctx.Pipe()
        self.children = [
            ctx.Process(target=intake, args=(up_child, args.rate, args.size, 3), name="intake", daemon=True),
            ctx.Process(target=work, args=(worker_child, "docket-0"), name="docket-0", daemon=True)]
        for c in self.children:
            c.start()
        self.received = 0
        self.answered = 0

    def stop(self):
        log.info("going down after %d uploads", self.received)
        for c in self.children:
            c.terminate()
        os._exit(0)

    def _answers(self):
        while True:
            answer = self.worker_conn.recv()
            self.answered += answer["ok"]

    def run(self):
        from docket import Execution
        threading.Thread(target=self._answers, daemon=True).start()
        told = time.monotonic()
        while True:
            key, data = self.uploads.recv()
            self.received += 1
            func = "fingerprint" if self.received % 3 == 0 else "thumbnail"
            self.worker_conn.send(Execution(key, func, data))
            if time.monotonic() - told > 10:
                told = time.monotonic()
                log.info("%d uploads, %d answered", self.received, self.answered)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--rate", type=float, default=28.0, help="uploads per second")
    ap.add_argument("--size", type=int, default=220_000)
    ap.add_argument("--uptime", type=float, default=130.0)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s [front] %(message)s")
    front = Front(args)
    timer = threading.Timer(args.uptime, front.stop)
    timer.daemon = True
    timer.start()
    front.run()


if __name__ == "__main__":
    main()
