"""Run agents over a set of repository tasks and collect their transcripts."""
import argparse
import json
import logging
import multiprocessing as mp
import os
import tempfile
import threading
import time

import torch

from agent import Agent
from guard import run_guard

log = logging.getLogger("rollouts")


def wall_time(seconds):
    def expire():
        time.sleep(seconds)
        os._exit(0)

    threading.Thread(target=expire, daemon=True).start()


def agent_worker(index, tasks, results, checkpoint_seconds, limit):
    wall_time(limit)
    torch.set_num_threads(1)
    agent = Agent(seed=index)
    agent.load_checkpoint(checkpoint_seconds)
    results.put(("ready", index, None))
    while True:
        task = tasks.get()
        if task is None:
            break
        results.put(("started", index, task))
        results.put(("done", index, agent.solve(task)))


def guard_worker(root_pid, max_runtime, limit):
    wall_time(limit)
    run_guard(root_pid, max_runtime)


class Coordinator:
    def __init__(self, args, out_path):
        self.args = args
        self.ctx = mp.get_context("fork")
        self.tasks, self.results = self.ctx.Queue(), self.ctx.Queue()
        self.in_flight = {}
        self.finished = 0
        self.solved = 0
        self.out = open(out_path, "w", buffering=1)
        self.workers = []

    def start(self):
        guard = self.ctx.Process(target=guard_worker, name="process-guard", daemon=True,
                                 args=(os.getpid(), self.args.tool_limit, self.args.wall_time))
        guard.start()
        for i in range(self.args.tasks):
            self.tasks.put(f"repo-{i:04d}")
        for i in range(self.args.workers):
            worker = self.ctx.Process(target=agent_worker, name=f"agent-{i}", daemon=True,
                                      args=(i, self.tasks, self.results, 1.5, self.args.wall_time))
            worker.start()
            self.workers.append(worker)
            time.sleep(self.args.stagger)

    def handle(self, kind, index, payload):
        if kind == "ready":
            log.info("agent-%d ready", index)
        elif kind == "started":
            self.in_flight[index] = (payload, time.time())
        else:
            self.in_flight.pop(index, None)
            self.finished += 1
            self.solved += payload["solved"]
            self.out.write(json.dumps(payload) + "\n")
            if self.finished % 10 == 0:
                log.info("%d/%d tasks, %d solved", self.finished, self.args.tasks, self.solved)

    def run(self):
        while self.finished < self.args.tasks:
            self.handle(*self.results.get())
        for _ in self.workers:
            self.tasks.put(None)
        for w in self.workers:
            w.join()
        log.info("done: %d solved of %d", self.solved, self.args.tasks)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--tasks", type=int, default=800)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--tool-limit", type=float, default=14, help="seconds a tool call may last")
    p.add_argument("--stagger", type=float, default=3.0)
    p.add_argument("--wall-time", type=int, default=115)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    wall_time(args.wall_time)
    with tempfile.TemporaryDirectory(prefix="rollouts_") as folder:
        coordinator = Coordinator(args, os.path.join(folder, "transcripts.jsonl"))
        coordinator.start()
        coordinator.run()


if __name__ == "__main__":
    main()
