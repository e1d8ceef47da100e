"""Hyperopt scan of a parton density fit. Each trial runs as a forked process of its own,
which gives all of its memory back to the system when the trial ends."""
import argparse
import json
import logging
import math
import multiprocessing as mp
import os
import random
import signal
import tempfile
import time
from multiprocessing.connection import wait

from trial import EXIT_PRUNED, run_trial, warm_up

log = logging.getLogger("hyperopt")


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--trials", type=int, default=2000)
    p.add_argument("--jobs", type=int, default=2)
    p.add_argument("--replicas", type=int, default=2)
    p.add_argument("--replica-time", type=float, default=1.6)
    p.add_argument("--points", type=int, default=3000)
    p.add_argument("--patience", type=int, default=15)
    p.add_argument("--trial-timeout", type=int, default=60)
    p.add_argument("--seed", type=int, default=2511)
    p.add_argument("--walltime", type=int, default=130)
    return p.parse_args()


class Scan:
    def __init__(self, args):
        self.args = args
        self.rng = random.Random(args.seed)
        self.ctx = mp.get_context("fork")
        self.running = {}
        self.best = None
        self.counts = {"ok": 0, "pruned": 0, "failed": 0}
        self.next_id = 1
        self.journal = open(os.path.join(tempfile.mkdtemp(prefix="hyperopt_"), "tries.jsonl"), "w")

    def sample(self):
        depth = self.rng.choice([1, 2, 3])
        return {"nodes": [self.rng.choice([10, 20, 30, 40]) for _ in range(depth)],
                "activation": self.rng.choice(["tanh", "sigmoid"]),
                "lr": math.exp(self.rng.uniform(math.log(1e-4), math.log(3e-2))),
                "prune_above": self.rng.choice([0.02, 0.05, 10.0])}

    def start_one(self):
        params = self.sample()
        receiver, sender = self.ctx.Pipe(duplex=False)
        process = self.ctx.Process(target=run_trial, args=(sender, params, self.args),
                                   name=f"trial-{self.next_id}", daemon=True)
        process.start()
        sender.close()
        self.running[process.sentinel] = (self.next_id, process, receiver, params, time.monotonic())
        self.next_id += 1

    def finish_one(self, sentinel):
        number, process, receiver, params, started = self.running.pop(sentinel)
        process.join()
        result = receiver.recv() if receiver.poll() else {"status": "failed"}
        receiver.close()
        if process.exitcode not in (0, EXIT_PRUNED):
            result = {"status": "failed", "reason": f"exit code {process.exitcode}"}
        process.close()
        self.counts[result["status"]] += 1
        self.journal.write(json.dumps({"trial": number, "params": params, **result}) + "\n")
        self.journal.flush()
        seconds = time.monotonic() - started
        if result["status"] == "ok":
            if self.best is None or result["loss"] < self.best:
                self.best = result["loss"]
            log.info("trial %d: chi2 %.5f in %.1fs (best %.5f)", number, result["loss"], seconds,
                     self.best)
        else:
            log.info("trial %d: %s in %.1fs (%s)", number, result["status"], seconds,
                     result.get("reason", "no answer"))

    def run(self):
        t0 = time.monotonic()
        while self.next_id <= self.args.trials or self.running:
            while len(self.running) < self.args.jobs and self.next_id <= self.args.trials:
                self.start_one()
            for sentinel in wait(list(self.running)):
                self.finish_one(sentinel)
            total = sum(self.counts.values())
            if total % 10 == 0:
                log.info("%d trials in %.0fs: %s", total, time.monotonic() - t0, self.counts)


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    signal.alarm(args.walltime)
    warm_up()
    Scan(args).run()


if __name__ == "__main__":
    main()
