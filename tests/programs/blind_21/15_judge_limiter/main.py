"""Label a pool of model answers: embeddings, topic tags and a judge score, from several endpoints."""
import argparse
import json
import logging
import multiprocessing as mp
import os
import random
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.request import Request, urlopen

import numpy as np

from limiter import Limiter, Rate

log = logging.getLogger("label")
RATES = {
    "embed-small": Rate(60, 1.0),
    "topic-tagger": Rate(40, 1.0),
    "judge-large": Rate(2, 5.0),
}


def time_limit(seconds):
    def expire():
        time.sleep(seconds)
        os._exit(0)

    threading.Thread(target=expire, daemon=True).start()


class StubEndpoint(BaseHTTPRequestHandler):
    """Answers like the hosted models do, for dry runs."""
    latency = {"embed-small": 0.015, "topic-tagger": 0.02, "judge-large": 0.25}

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        time.sleep(self.latency[body["model"]])
        rng = np.random.default_rng(len(body["text"]))
        answer = {"embed-small": lambda: rng.standard_normal(32).tolist(),
                  "topic-tagger": lambda: ["maths", "code", "law", "chat"][int(rng.integers(4))],
                  "judge-large": lambda: int(rng.integers(1, 11))}[body["model"]]()
        payload = json.dumps({"output": answer}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, *args):
        pass


def serve_stub(conn, limit):
    time_limit(limit)
    server = ThreadingHTTPServer(("127.0.0.1", 0), StubEndpoint)
    conn.send(server.server_address)
    server.serve_forever()


class Endpoint:
    def __init__(self, model, address, limiter):
        self.model, self.limiter = model, limiter
        self.url = f"http://{address[0]}:{address[1]}/v1/run"

    def __call__(self, text):
        if not self.limiter.try_acquire(self.model):
            raise TimeoutError(f"{self.model}: no slot")
        data = json.dumps({"model": self.model, "text": text}).encode()
        with urlopen(Request(self.url, data=data), timeout=30) as reply:
            return json.load(reply)["output"]


def synth_answer(index):
    rng = random.Random(index)
    return " ".join(rng.choice(["the", "result", "follows", "from", "lemma", "return", "x"])
                    for _ in range(rng.randrange(20, 200)))


def labeller(model, address, limiter, indices, done, out_dir, limit):
    time_limit(limit)
    endpoint = Endpoint(model, address, limiter)
    path = os.path.join(out_dir, f"{model}-{os.getpid()}.jsonl")
    with open(path, "w", buffering=1) as out:
        for index in indices:
            value = endpoint(synth_answer(index))
            out.write(json.dumps({"index": index, "model": model, "value": value}) + "\n")
            done.put((model, index))


class Monitor:
    def __init__(self, totals, every=5.0):
        self.totals, self.every = totals, every
        self.counts = dict.fromkeys(totals, 0)
        self.started = self.reported = time.time()

    def add(self, model):
        self.counts[model] += 1

    def maybe_report(self):
        now = time.time()
        if now - self.reported >= self.every:
            self.reported = now
            parts = [f"{m} {c}/{self.totals[m]} ({c / (now - self.started):.1f}/s)" for m, c in self.counts.items()]
            log.info("  ".join(parts))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--answers", type=int, default=6000)
    p.add_argument("--judged", type=int, default=400)
    p.add_argument("--time-limit", type=int, default=115)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    time_limit(args.time_limit)
    ctx = mp.get_context("fork")
    parent, child = ctx.Pipe()
    ctx.Process(target=serve_stub, args=(child, args.time_limit), name="stub-endpoint", daemon=True).start()
    address = parent.recv()
    limiter = Limiter(ctx, RATES)
    done = ctx.Queue()
    half = args.answers // 2
    jobs = [("embed-small", range(half)), ("embed-small", range(half, args.answers)),
            ("topic-tagger", range(args.answers)), ("judge-large", range(args.judged))]
    with tempfile.TemporaryDirectory(prefix="labels_") as out_dir:
        workers = [ctx.Process(target=labeller, name=f"label-{model}-{i}", daemon=True,
                               args=(model, address, limiter, indices, done, out_dir, args.time_limit))
                   for i, (model, indices) in enumerate(jobs)]
        for w in workers:
            w.start()
        totals = {"embed-small": args.answers, "topic-tagger": args.answers, "judge-large": args.judged}
        monitor = Monitor(totals)
        for _ in range(sum(totals.values())):
            model, _ = done.get()
            monitor.add(model)
            monitor.maybe_report()
        for w in workers:
            w.join()


if __name__ == "__main__":
    main()
