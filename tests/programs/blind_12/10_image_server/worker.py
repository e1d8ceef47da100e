"""Device workers and the context they report progress with."""
import logging
import time
from queue import Empty

import numpy as np

log = logging.getLogger("onnx.worker")


class ProgressEvent:
    def __init__(self, job, device, progress, finished=False, failed=False):
        self.job = job
        self.device = device
        self.progress = progress
        self.finished = finished
        self.failed = failed


class WorkerContext:
    def __init__(self, device, pending, progress, cancel):
        self.device = device
        self.pending = pending
        self.progress = progress
        self.cancel = cancel
        self.job = None

    def set_progress(self, n):
        self.progress.put(ProgressEvent(self.job, self.device, n), block=False)

    def set_finished(self):
        self.progress.put(ProgressEvent(self.job, self.device, -1, finished=True), block=False)

    def set_failed(self):
        self.progress.put(ProgressEvent(self.job, self.device, -1, failed=True), block=False)


def run_txt2img(context, params):
    rng = np.random.default_rng(params["seed"])
    latents = rng.standard_normal((4, params["height"] // 8, params["width"] // 8)).astype(np.float32)
    for step in range(params["steps"]):
        if context.cancel.is_set():
            return None
        noise = np.roll(latents, 1, 1) + np.roll(latents, 1, 2) - 2 * latents
        latents = latents + noise / params["steps"]
        time.sleep(0.03)
        context.set_progress(step + 1)
    return latents


def worker_main(context):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    log.info("device %s ready", context.device)
    while True:
        try:
            job, params = context.pending.get(timeout=1.0)
        except Empty:
            continue
        context.job = job
        try:
            run_txt2img(context, params)
            context.set_finished()
            log.info("job %s done", job)
        except Exception:
            log.exception("error while running job %s", job)
