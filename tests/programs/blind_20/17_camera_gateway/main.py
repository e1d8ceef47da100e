"""Gateway that sends camera frames to the inference server and counts detections."""
import argparse
import collections
import logging
import multiprocessing as mp
import signal
import threading
import time

import numpy as np

from infer_context import InferContext, InferError
from inference_server import serve_model

log = logging.getLogger("gateway")


class Camera:
    def __init__(self, name, size, seed):
        self.name = name
        self.size = size
        self.rng = np.random.default_rng(seed)
        self.background = self.rng.random((3, size, size), dtype=np.float32)

    def capture(self):
        frame = self.background.copy()
        y, x = self.rng.integers(0, self.size - 32, size=2)
        frame[:, y:y + 32, x:x + 32] = self.rng.random()
        return frame


class Gateway:
    def __init__(self, context, cameras, period):
        self.context = context
        self.cameras = cameras
        self.period = period
        self.detections = collections.Counter()
        self.answered = 0
        self.dropped = 0
        self.latencies = collections.deque(maxlen=200)
        self._lock = threading.Lock()

    def on_result(self, context, request_id):
        try:
            scores, latency = context.get_async_run_results(request_id)
        except InferError as err:
            log.debug("%s", err)
            with self._lock:
                self.dropped += 1
            return
        with self._lock:
            self.answered += 1
            self.detections[int(scores.argmax())] += 1
            self.latencies.append(latency)

    def report(self):
        with self._lock:
            mean = 1000 * sum(self.latencies) / max(1, len(self.latencies))
            log.info("answered %d, dropped %d, mean latency %.0f ms, top classes %s",
                     self.answered, self.dropped, mean, self.detections.most_common(2))

    def run(self, report_every):
        tick, last = time.monotonic(), time.monotonic()
        while True:
            for camera in self.cameras:
                self.context.async_run(self.on_result, camera.capture())
            if time.monotonic() - last > report_every:
                self.report()
                last = time.monotonic()
            tick += self.period
            time.sleep(max(0.0, tick - time.monotonic()))


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--cameras", type=int, default=6)
    p.add_argument("--frame-size", type=int, default=224)
    p.add_argument("--period", type=float, default=0.4, help="seconds between captures")
    p.add_argument("--instances", type=int, default=2)
    p.add_argument("--queue-delay", type=float, default=0.05,
                   help="requests that wait longer are answered with a timeout")
    p.add_argument("--min-latency", type=float, default=0.06)
    p.add_argument("--report-every", type=float, default=5.0)
    p.add_argument("--walltime", type=int, default=130)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    signal.alarm(args.walltime)
    ctx = mp.get_context("spawn")
    requests, responses = ctx.Queue(), ctx.Queue()
    for i in range(args.instances):
        ctx.Process(target=serve_model, daemon=True, name=f"instance-{i}",
                    args=(i, requests, responses, args.queue_delay, args.min_latency,
                          args.walltime)).start()
    cameras = [Camera(f"cam{i}", args.frame_size, i) for i in range(args.cameras)]
    gateway = Gateway(InferContext(requests, responses), cameras, args.period)
    gateway.run(args.report_every)


if __name__ == "__main__":
    main()
