"""Small serving engine: batches of requests go through two worker processes."""
import argparse
import collections
import logging
import signal
import sys
import time

import torch

from executor import MultiprocExecutor

log = logging.getLogger("engine")


class Engine:
    def __init__(self, args):
        self.args = args
        self.executor = MultiprocExecutor(args.workers, args.width, args.hidden)
        self.hidden = torch.randn(args.batch, args.width, generator=torch.Generator().manual_seed(2))
        self.in_flight = collections.deque()
        self.loading = None
        self.adapter = None
        self.step_no = 0
        self.retried = 0

    def schedule(self):
        """Keep the workers busy: the next step is sent before the last one is back."""
        while len(self.in_flight) < self.args.depth:
            future = self.executor.collective_rpc("execute_model", (self.step_no, self.hidden, self.adapter),
                                                  timeout=self.args.step_timeout)
            self.in_flight.append((self.step_no, future))
            self.step_no += 1

    def update(self):
        step, future = self.in_flight.popleft()
        try:
            parts = future.result()
        except TimeoutError as err:
            self.retried += 1
            log.warning("step %d: %s, its requests go to the next step", step, err)
            return
        out = sum(value for _, value in parts)
        self.hidden = torch.nn.functional.normalize(self.hidden + out, dim=-1) * 8
        time.sleep(self.args.sampling)
        if step % 50 == 0:
            log.info("step %d, adapter %s, |h| %.3f, retried %d", step, self.adapter, self.hidden.norm(), self.retried)

    def add_adapter(self, name):
        log.info("loading adapter %s", name)
        self.loading = (name, self.executor.collective_rpc(
            "load_adapter", (name, self.args.adapter_rank, self.args.adapter_mb, self.args.share_mbps), timeout=self.args.load_timeout))

    def finish_loading(self):
        name, future = self.loading
        future.result()
        self.adapter = name
        self.loading = None
        log.info("adapter %s is active", name)

    def run(self):
        began = time.monotonic()
        names = iter(f"tenant-{i:02d}" for i in range(1000))
        next_adapter = began + self.args.adapter_interval
        while True:
            if self.loading is None and time.monotonic() > next_adapter:
                self.add_adapter(next(names))
                next_adapter = time.monotonic() + self.args.adapter_interval
            self.schedule()
            self.update()
            if self.loading is not None and self.loading[1].done:
                self.finish_loading()


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--width", type=int, default=256)
    p.add_argument("--hidden", type=int, default=1024)
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--depth", type=int, default=2, help="steps in flight")
    p.add_argument("--sampling", type=float, default=0.008)
    p.add_argument("--step-timeout", type=float, default=1.0)
    p.add_argument("--load-timeout", type=float, default=60.0)
    p.add_argument("--adapter-interval", type=float, default=2.5)
    p.add_argument("--adapter-rank", type=int, default=64)
    p.add_argument("--adapter-mb", type=float, default=220.0)
    p.add_argument("--share-mbps", type=float, default=100.0)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    torch.set_num_threads(1)
    engine = Engine(args)
    try:
        engine.run()
    finally:
        engine.executor.shutdown()


if __name__ == "__main__":
    main()
