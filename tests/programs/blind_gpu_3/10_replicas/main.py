"""Embedding service with a fixed set of GPU replicas; the first free one takes the job."""
import argparse
import logging
import queue
import time

import numpy as np
import torch.multiprocessing as mp

from replica import limit_walltime, replica_main

log = logging.getLogger("service")


class Dispatcher:
    def __init__(self, args):
        self.args = args
        ctx = mp.get_context("spawn")
        self.outbox = ctx.Queue()
        self.inboxes = [ctx.Queue() for _ in range(args.replicas)]
        self.procs = [ctx.Process(target=replica_main, name=f"replica-{i}", args=(i, args, q, self.outbox))
                      for i, q in enumerate(self.inboxes)]
        for p in self.procs:
            p.start()
        self.busy = [True] * args.replicas
        self.backlog = []
        self.sent_at = {}
        self.latencies = []
        self.served = [0] * args.replicas

    def wait_until_up(self):
        for _ in self.procs:
            _, index, _ = self.outbox.get()
            self.busy[index] = False
            log.info("replica %d is up", index)

    def submit(self, job_id, frames):
        self.sent_at[job_id] = time.time()
        self.backlog.append((job_id, frames))
        self._assign()

    def _assign(self):
        while self.backlog:
            free = [i for i, b in enumerate(self.busy) if not b]
            if not free:
                return
            self.busy[free[0]] = True
            self.inboxes[free[0]].put(self.backlog.pop(0))

    def poll(self, timeout):
        try:
            _, index, (job_id, _emb) = self.outbox.get(timeout=max(timeout, 0.0))
        except queue.Empty:
            return
        self.busy[index] = False
        self.served[index] += 1
        self.latencies.append(time.time() - self.sent_at.pop(job_id))
        self._assign()

    def outstanding(self):
        return len(self.sent_at)

    def shutdown(self):
        for q in self.inboxes:
            q.put(None)
        for p in self.procs:
            p.join()


def traffic(args):
    """Quiet hours: single requests, now and then a small burst."""
    rng = np.random.default_rng(args.seed)
    job_id = 0
    while True:
        gap = float(rng.exponential(args.mean_gap))
        size = args.replicas if rng.random() < args.burst_prob else 1
        yield gap, [(job_id + k, rng.standard_normal((args.frames, args.in_dim), dtype=np.float32)) for k in range(size)]
        job_id += size


def serve(args):
    limit_walltime(args.time_limit)
    service = Dispatcher(args)
    service.wait_until_up()
    started = report = time.time()
    arrivals = traffic(args)
    gap, jobs = next(arrivals)
    due = started + gap
    while time.time() - started < args.serve_seconds:
        now = time.time()
        if now >= due:
            for job_id, frames in jobs:
                service.submit(job_id, frames)
            gap, jobs = next(arrivals)
            due = now + gap
        service.poll(min(due - time.time(), 0.5))
        if time.time() - report > 10:
            lat = 1000 * float(np.median(service.latencies[-50:] or [0]))
            log.info("served %s, %d open, median latency %.0f ms", service.served, service.outstanding(), lat)
            report = time.time()
    while service.outstanding():
        service.poll(0.5)
    service.shutdown()
    log.info("served %s in all", service.served)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--replicas", type=int, default=3)
    p.add_argument("--in-dim", type=int, default=1024)
    p.add_argument("--hidden", type=int, default=2048)
    p.add_argument("--layers", type=int, default=5)
    p.add_argument("--frames", type=int, default=64)
    p.add_argument("--mean-gap", type=float, default=0.4)
    p.add_argument("--burst-prob", type=float, default=0.03)
    p.add_argument("--serve-seconds", type=float, default=100)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--time-limit", type=float, default=128)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    serve(args)


if __name__ == "__main__":
    main()
