import argparse
import logging
import multiprocessing as mp
import random
import time

from trial import run_trial

log = logging.getLogger("search")


class Search:
    def __init__(self, args):
        self.args = args
        self.manager = mp.Manager()
        self.registry = self.manager.dict()
        self.lock = self.manager.Lock()
        self.running = {}
        self.rng = random.Random(args.seed)

    def _params(self, number):
        width = [16, 32, 512, 64][number % 4]
        return {"lr": self.rng.uniform(0.01, 0.05), "width": width, "steps": 60}

    def _launch(self, number):
        proc = mp.Process(target=run_trial, args=(number, self._params(number), self.registry, self.lock))
        proc.start()
        self.running[number] = (proc, time.monotonic())

    def _record(self, number, state):
        with self.lock:
            self.registry[number] = {"state": state, "loss": None}

    def _collect(self):
        for number, (proc, started) in list(self.running.items()):
            if not proc.is_alive():
                proc.join()
                del self.running[number]
            elif time.monotonic() - started > self.args.trial_seconds:
                log.info("trial %d over its %.0f s budget, stopping it", number, self.args.trial_seconds)
                proc.terminate()
                proc.join()
                del self.running[number]
                self._record(number, "timeout")

    def run(self):
        number = 0
        while number < self.args.trials or self.running:
            while number < self.args.trials and len(self.running) < self.args.parallel:
                self._launch(number)
                number += 1
            self._collect()
            time.sleep(0.2)
        log.info("best %s", self.registry.get("best"))


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--trials", type=int, default=40)
    p.add_argument("--parallel", type=int, default=2)
    p.add_argument("--trial-seconds", type=float, default=7)
    p.add_argument("--seed", type=int, default=0)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    Search(p.parse_args()).run()
