"""Agent: takes training tasks and runs each in a process, with its output sent to the hub."""
import argparse
import logging
import multiprocessing as mp
import signal
import sys
import time

import torch
from torch import nn

from hub import HubClient, serve
from tasklog import LoggingThread, TaskOutput

log = logging.getLogger("agent")


class Task:
    def __init__(self, number, epochs, lr):
        self.name = f"train-{number}"
        self.epochs = epochs
        self.lr = lr
        self.seed = number

    def execute(self):
        g = torch.Generator().manual_seed(self.seed)
        x = torch.randn(256, 16, generator=g)
        y = (x[:, :4].prod(1) > 0).float()
        torch.manual_seed(self.seed)
        model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))
        for epoch in range(self.epochs):
            for step, idx in enumerate(torch.randperm(256).split(16)):
                loss = nn.functional.binary_cross_entropy_with_logits(model(x[idx]).squeeze(1), y[idx])
                model.zero_grad()
                loss.backward()
                with torch.no_grad():
                    for p in model.parameters():
                        p -= self.lr * p.grad
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}")
                time.sleep(0.025)


def run_task(task, port, walltime):
    signal.alarm(walltime)
    torch.set_num_threads(1)
    client = HubClient(port)
    thread = LoggingThread(HubClient(port), task.name)
    thread.start()
    real, sys.stdout = sys.stdout, TaskOutput(thread)
    client.set_state(task.name, "running")
    state = "failed"
    try:
        task.execute()
        state = "finished"
    finally:
        thread.stop()
        sys.stdout = real
        client.set_state(task.name, state)


class Agent:
    def __init__(self, args, ctx, port):
        self.args = args
        self.ctx = ctx
        self.port = port
        self.waiting = [Task(n, args.epochs, 10 ** -(2 + n % 3)) for n in range(args.tasks)]
        self.running = {}

    def fill(self):
        while self.waiting and len(self.running) < self.args.slots:
            task = self.waiting.pop(0)
            proc = self.ctx.Process(target=run_task, args=(task, self.port, self.args.walltime),
                                    name=task.name, daemon=True)
            proc.start()
            self.running[proc.sentinel] = (task, proc)
            log.info("task %s started, pid %d", task.name, proc.pid)

    def run(self):
        self.fill()
        while self.running:
            for sentinel in mp.connection.wait(list(self.running)):
                task, proc = self.running.pop(sentinel)
                proc.join()
                log.info("task %s ended with exit code %d", task.name, proc.exitcode)
            self.fill()
        log.info("no more tasks")


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--tasks", type=int, default=30)
    p.add_argument("--slots", type=int, default=3)
    p.add_argument("--epochs", type=int, default=40)
    p.add_argument("--rotate-after", type=float, default=1.5)
    p.add_argument("--rotate-seconds", type=float, default=30.0)
    p.add_argument("--walltime", type=int, default=130)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    signal.alarm(args.walltime)
    torch.set_num_threads(1)
    ctx = mp.get_context("fork")
    ours, theirs = ctx.Pipe(duplex=False)
    hub = ctx.Process(target=serve, name="hub", daemon=True,
                      args=(theirs, args.rotate_after, args.rotate_seconds, args.walltime))
    hub.start()
    Agent(args, ctx, ours.recv()).run()
    hub.terminate()


if __name__ == "__main__":
    main()
