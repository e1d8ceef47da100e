import argparse
import logging
import multiprocessing as mp
import os
import socket
import threading
import time

import numpy as np

from procutil import Child, setup_logging
from publisher import MetricsPublisher


class Regressor:
    """Two-layer perceptron trained with plain SGD."""

    def __init__(self, n_in, n_hidden, rng):
        self.w1 = rng.standard_normal((n_in, n_hidden)) / n_in ** 0.5
        self.b1 = np.zeros(n_hidden)
        self.w2 = rng.standard_normal((n_hidden, 1)) / n_hidden ** 0.5

    def sgd_step(self, x, y, lr):
        h = np.tanh(x @ self.w1 + self.b1)
        err = h @ self.w2 - y
        g = 2.0 * err / len(x)
        gh = (g @ self.w2.T) * (1.0 - h * h)
        self.w2 -= lr * (h.T @ g)
        self.w1 -= lr * (x.T @ gh)
        self.b1 -= lr * gh.sum(0)
        return float((err ** 2).mean())


class TrainWorker(Child):
    """One member of the ensemble."""

    def __init__(self, member, metrics, args):
        super().__init__(name=f"member{member}", daemon=True)
        self.member = member
        self.metrics = metrics
        self.args = args

    def main(self):
        rng = np.random.default_rng(self.member)
        model = Regressor(32, 64, rng)
        target = rng.standard_normal((32, 1))
        for step in range(1, self.args.steps + 1):
            x = rng.standard_normal((128, 32))
            loss = model.sgd_step(x, x @ target, lr=0.02)
            self.metrics.put({"member": self.member, "step": step, "loss": round(loss, 5)})
            if step % 50 == 0:
                self.log.info("step %d loss %.4f", step, loss)
            time.sleep(self.args.step_time)


class Dashboard(Child):
    """Terminal dashboard: follows the stream for one page, then reconnects later."""

    def __init__(self, port, page):
        super().__init__(name="dashboard", daemon=True)
        self.port = port
        self.page = page

    def main(self):
        while True:
            try:
                self.show_page()
            except ConnectionError as exc:
                self.log.warning("no stream: %s", exc)
            time.sleep(20.0)

    def show_page(self):
        with socket.create_connection(("127.0.0.1", self.port)) as sock:
            lines, tail = 0, b""
            while lines < self.page:
                data = sock.recv(4096)
                if not data:
                    break
                tail = (tail + data)[-4096:]
                lines += data.count(b"\n")
            sock.shutdown(socket.SHUT_RDWR)
        rows = tail.strip().splitlines()
        self.log.info("page of %d rows, last %s", lines, rows[-1].decode() if rows else "-")


def parse_args():
    p = argparse.ArgumentParser(description="small ensemble with live metrics")
    p.add_argument("--members", type=int, default=3)
    p.add_argument("--steps", type=int, default=1500)
    p.add_argument("--step-time", type=float, default=0.06)
    p.add_argument("--page", type=int, default=450)
    p.add_argument("--queue-size", type=int, default=400)
    p.add_argument("--time-limit", type=float, default=125.0)
    return p.parse_args()


def main():
    args = parse_args()
    log = setup_logging("main")
    metrics = mp.Queue(maxsize=args.queue_size)
    ours, theirs = mp.Pipe()
    publisher = MetricsPublisher(metrics, theirs)
    publisher.start()
    port = ours.recv()
    log.info("metrics on port %d", port)
    dashboard = Dashboard(port, args.page)
    dashboard.start()
    members = [TrainWorker(i, metrics, args) for i in range(args.members)]
    for m in members:
        m.start()

    def on_limit():
        logging.getLogger("main").warning("time limit")
        for p in members + [dashboard, publisher]:
            p.kill()
        os._exit(0)

    limit = threading.Timer(args.time_limit, on_limit)
    limit.daemon = True
    limit.start()
    for m in members:
        m.join()
    log.info("all members finished")


if __name__ == "__main__":
    main()
