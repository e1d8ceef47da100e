"""Terminal monitor of a relay: a sampler process feeds a small status log."""
import argparse
import logging
import multiprocessing as mp
import os
import threading
import time

import numpy as np

import relay
from controller import Controller, OperationFailed

log = logging.getLogger("monitor")


class GraphPanel:
    """Draws the bandwidth graph and the header with what is known of the relay."""

    def __init__(self, controller, window):
        self.controller = controller
        self.window = window

    def header(self):
        return f"relay {self.controller.get_info('version')}"

    def identity(self, history):
        try:
            return self.controller.get_info("fingerprint")
        except OperationFailed:
            return "unknown"

    def draw(self):
        raw = self.controller.bandwidth_samples(self.window)
        history = np.frombuffer(raw, dtype=np.float32).reshape(-1, 2)
        peak = history.max(0)
        bars = np.histogram(history[:, 0], bins=40)[0]
        return {"header": self.header(), "identity": self.identity(history),
                "peak": peak.round(1).tolist(), "bars": bars.tolist()}


def sample(address, queue, args):
    timer = threading.Timer(args.seconds + 5, os._exit, args=(0,))
    timer.daemon = True
    timer.start()
    panel = GraphPanel(Controller(address), args.window)
    end = time.time() + args.seconds
    step = 1.0 / args.fps
    due = time.time()
    while time.time() < end:
        queue.put(panel.draw())
        due += step
        time.sleep(max(0.0, due - time.time()))
    queue.put(None)


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--fps", type=float, default=20.0)
    p.add_argument("--window", type=int, default=48_000, help="samples shown in the graph")
    p.add_argument("--seconds", type=float, default=120.0)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    here, there = mp.Pipe()
    daemon = mp.Process(target=relay.run, args=(there, args.seconds + 10), name="relay", daemon=True)
    daemon.start()
    address = here.recv()
    queue = mp.Queue(maxsize=50)
    sampler = mp.Process(target=sample, args=(address, queue, args), name="sampler", daemon=True)
    sampler.start()
    log.info("relay pid %d, sampler pid %d", daemon.pid, sampler.pid)
    frames = 0
    while True:
        frame = queue.get(timeout=60)
        if frame is None:
            break
        frames += 1
        if frames % 100 == 0:
            log.info("%d frames, %s, id %s, peak %s", frames, frame["header"], frame["identity"], frame["peak"])
    sampler.join(5)
    daemon.terminate()


if __name__ == "__main__":
    main()
