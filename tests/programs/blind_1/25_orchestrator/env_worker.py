"""Environment worker process: scores completions, answers through a queue."""
import multiprocessing as mp
import os
import queue
import random
import sys
import tempfile
import time


def score(completion):
    parts = dict(p.split("=", 1) for p in completion.split(";"))
    return float(parts["format"]) * 0.2 + float(parts["answer"]) * 0.8


def _completion(rng, i):
    if i == 55:
        return "format=1.0"
    return f"format={rng.random():.2f};answer={rng.random():.2f}"


def _run(name, requests, responses, log_dir):
    sys.stdout = sys.stderr = open(os.path.join(log_dir, f"{name}.log"), "w", buffering=1)
    rng = random.Random(name)
    i = 0
    while True:
        req = requests.get()
        if req is None:
            return
        i += 1
        time.sleep(0.05 + 0.1 * rng.random())
        responses.put((req, score(_completion(rng, i))))
        print("request", req, "done")


class EnvWorker:
    def __init__(self, name, log_dir):
        self.name = name
        self.requests, self.responses = mp.Queue(), mp.Queue()
        self.pending = set()
        self.proc = mp.Process(target=_run, args=(name, self.requests, self.responses, log_dir), name=name, daemon=True)
        self.proc.start()

    def submit(self, rid):
        self.pending.add(rid)
        self.requests.put(rid)

    def collect_responses(self):
        out = []
        while self.pending:
            try:
                rid, r = self.responses.get(timeout=0.2)
            except queue.Empty:
                break
            self.pending.discard(rid)
            out.append((rid, r))
        return out


def make_workers(names):
    log_dir = tempfile.mkdtemp(prefix="env_workers_")
    return [EnvWorker(n, log_dir) for n in names], log_dir
