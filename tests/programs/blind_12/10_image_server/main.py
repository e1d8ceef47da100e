"""Image server: a queue of jobs, one worker per device, a worker for the progress reports."""
import argparse
import itertools
import logging
import multiprocessing as mp
import random
import time

from progress import progress_main
from worker import WorkerContext, worker_main

log = logging.getLogger("onnx.server")


class DevicePoolExecutor:
    def __init__(self, devices, progress_size=300):
        self.pending = mp.Queue(maxsize=20)
        self.progress = mp.Queue(maxsize=progress_size)
        self.cancel = mp.Event()
        self.manager = mp.Manager()
        self.limits = self.manager.dict()
        self.progress_worker = mp.Process(target=progress_main, args=(self.progress, self.limits),
                                          name="onnx progress", daemon=True)
        self.progress_worker.start()
        self.workers = []
        for device in devices:
            context = WorkerContext(device, self.pending, self.progress, self.cancel)
            worker = mp.Process(target=worker_main, args=(context,), name=f"onnx {device}", daemon=True)
            worker.start()
            self.workers.append(worker)

    def submit(self, key, params):
        self.limits[key] = params["steps"]
        self.pending.put((key, params))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--devices", nargs="*", default=["cuda:0", "cuda:1"])
    p.add_argument("--minutes", type=float, default=4)
    p.add_argument("--interval", type=float, default=0.6, help="seconds between requests")
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    server = DevicePoolExecutor(args.devices)
    rng = random.Random(1)
    end = time.time() + 60 * args.minutes
    for i in itertools.count():
        if time.time() > end:
            break
        params = {"seed": rng.randrange(2**31), "width": 512, "height": 512, "steps": rng.choice([20, 25, 30])}
        if i % 12 == 9:
            params["steps"] = 0  # upscaling only
        server.submit(f"txt2img_{i:05d}", params)
        if i % 10 == 0:
            log.info("%d requests", i + 1)
        time.sleep(args.interval)
    log.info("shutting down")


if __name__ == "__main__":
    main()
