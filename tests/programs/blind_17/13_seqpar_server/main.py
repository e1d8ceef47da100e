"""Submit a day's enhancement jobs to a local multi-rank inference service."""
import argparse
import logging
import os
import random
import socket
import threading
import time

import torch.multiprocessing as mp

from worker import run_rank

log = logging.getLogger("server")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class TaskService:
    def __init__(self, task_queue, result_queue):
        self.task_queue, self.result_queue = task_queue, result_queue
        self.pending = {}
        self.done = 0
        self.lock = threading.Lock()
        self.slots = threading.Semaphore(2)
        threading.Thread(target=self.collect, name="collector", daemon=True).start()

    def submit(self, task):
        self.slots.acquire()
        with self.lock:
            self.pending[task["task_id"]] = time.monotonic()
        self.task_queue.put(task)

    def collect(self):
        while True:
            result = self.result_queue.get()
            with self.lock:
                started = self.pending.pop(result["task_id"])
                self.done += 1
            self.slots.release()
            log.info("task %s %s in %.2fs %s", result["task_id"], result["status"],
                     time.monotonic() - started, result["message"])


def job_list(rng, count):
    jobs = []
    for i in range(count):
        kind = rng.choices(["clip", "short", "loop", "still"], weights=[5, 3, 2, 1])[0]
        frames = {"clip": rng.choice([24, 33, 49]), "short": rng.choice([9, 12, 17]), "loop": 8,
                  "still": rng.choice([1, 4])}[kind]
        jobs.append({"task_id": f"{kind}-{i:04d}", "num_frames": frames, "height": 256, "width": 384,
                     "steps": rng.randint(4, 8), "seed": 1000 + i})
    return jobs


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--nproc", type=int, default=3)
    p.add_argument("--jobs", type=int, default=400)
    p.add_argument("--seed", type=int, default=8)
    p.add_argument("--max-seconds", type=float, default=130)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    ctx = mp.get_context("spawn")
    task_queue, result_queue = ctx.Queue(), ctx.Queue()
    port = free_port()
    ranks = [ctx.Process(target=run_rank, args=(r, args.nproc, port, task_queue, result_queue),
                         name=f"rank{r}", daemon=True) for r in range(args.nproc)]
    for p in ranks:
        p.start()

    def expire():
        time.sleep(args.max_seconds)
        log.warning("time limit of %.0f s reached", args.max_seconds)
        for p in ranks:
            p.terminate()
        os._exit(0)

    threading.Thread(target=expire, name="limit", daemon=True).start()
    service = TaskService(task_queue, result_queue)
    for job in job_list(random.Random(args.seed), args.jobs):
        service.submit(job)
        time.sleep(0.05)
    task_queue.put(None)
    for p in ranks:
        p.join()
    log.info("%d jobs done", service.done)


if __name__ == "__main__":
    main()
