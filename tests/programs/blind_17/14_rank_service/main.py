"""Re-rank a backlog of search sessions through the scoring service."""
import argparse
import http.client
import json
import logging
import multiprocessing as mp
import random
import time

from server import run_server


class SessionReranker:
    """One backlog worker: takes a session, scores its candidates, keeps the top k."""

    def __init__(self, host, port, seed, n_features=32):
        self.conn = http.client.HTTPConnection(host, port, timeout=30)
        self.rng = random.Random(seed)
        self.n_features = n_features
        self.kept = 0

    def candidates(self):
        n = self.rng.randint(4, 10)
        return [[round(self.rng.gauss(0, 1), 3) for _ in range(self.n_features)] for _ in range(n)]

    def score(self, rows):
        body = json.dumps({"rows": rows}).encode()
        self.conn.request("POST", "/score", body, {"Content-Type": "application/json"})
        response = self.conn.getresponse()
        answer = json.loads(response.read())
        if response.status != 200:
            raise RuntimeError(answer["error"])
        return answer["scores"]

    def session(self):
        rows = self.candidates()
        scores = self.score(rows)
        order = sorted(range(len(rows)), key=scores.__getitem__, reverse=True)
        self.kept += len(order[:3])


def run_reranker(idx, args, port, progress):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    log = logging.getLogger(f"reranker-{idx}")
    worker = SessionReranker(args.host, port, seed=100 + idx)
    todo = args.sessions // args.rerankers
    start = time.monotonic()
    for i in range(todo):
        worker.session()
        with progress.get_lock():
            progress.value += 1
        if time.monotonic() - start > args.max_seconds:
            log.warning("gave up after %d of %d sessions", i + 1, todo)
            return
    log.info("finished %d sessions", todo)


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--host", default="127.0.0.1")
    p.add_argument("--sessions", type=int, default=150_000)
    p.add_argument("--rerankers", type=int, default=3)
    p.add_argument("--report-every", type=float, default=5.0)
    p.add_argument("--max-seconds", type=float, default=115.0)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    log = logging.getLogger("backlog")
    ctx = mp.get_context("spawn")
    parent, child = ctx.Pipe()
    server = ctx.Process(target=run_server, args=(args.host, child, args.report_every), name="rank-server",
                         daemon=True)
    server.start()
    port = parent.recv()
    progress = ctx.Value("q", 0)
    workers = [ctx.Process(target=run_reranker, args=(i, args, port, progress), name=f"reranker-{i}")
               for i in range(args.rerankers)]
    for w in workers:
        w.start()
    start = time.monotonic()
    while any(w.is_alive() for w in workers):
        time.sleep(args.report_every)
        done = progress.value
        rate = done / (time.monotonic() - start)
        log.info("%d/%d sessions, %.0f sessions/s, %.0f min left", done, args.sessions, rate,
                 (args.sessions - done) / max(rate, 1e-6) / 60)
    for w in workers:
        w.join()
    server.terminate()


if __name__ == "__main__":
    main()
