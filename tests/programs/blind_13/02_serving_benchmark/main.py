"""Load test: N client processes share one queue of prompts and send them to a local server."""
import argparse
import json
import logging
import multiprocessing as mp
import os
import time

import numpy as np

from client import run_client
from prompts import generate_prompts
from server import run_server

log = logging.getLogger("benchmark")


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--num-clients", type=int, default=4)
    p.add_argument("--num-requests", type=int, default=120)
    p.add_argument("--rate", type=float, default=5.0, help="requests per second and client (Poisson arrivals)")
    p.add_argument("--mean-prompt-length", type=int, default=48)
    p.add_argument("--mean-new-tokens", type=int, default=12)
    p.add_argument("--seed", type=int, default=7)
    p.add_argument("--out", default="results.json")
    return p.parse_args()


def summarize(responses, elapsed):
    lat = np.array([r["end"] - r["start"] for r in responses])
    tokens = sum(r["new_tokens"] for r in responses)
    return {
        "requests": len(responses),
        "throughput_rps": len(responses) / elapsed,
        "tokens_per_s": tokens / elapsed,
        "p50": float(np.percentile(lat, 50)),
        "p95": float(np.percentile(lat, 95)),
    }


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    ctx = mp.get_context("fork")

    recv, send = ctx.Pipe(duplex=False)
    server = ctx.Process(target=run_server, args=(send,), name="server", daemon=True)
    server.start()
    address, authkey = recv.recv()
    log.info("server is up at %s", address)

    query_queue = ctx.Queue()
    result_queue = ctx.Queue()
    barrier = ctx.Barrier(args.num_clients + 1)
    for query in generate_prompts(args):
        query_queue.put(query)

    clients = []
    for i in range(args.num_clients):
        p = ctx.Process(
            target=run_client,
            args=(i, address, authkey, barrier, query_queue, result_queue, args.rate, args.seed),
            name=f"client-{i}",
            daemon=True,
        )
        p.start()
        clients.append(p)

    barrier.wait()
    t0 = time.time()
    log.info("all clients connected, sending %d requests", args.num_requests)
    responses = []
    while len(responses) < args.num_requests:
        responses.append(result_queue.get())
        if len(responses) % 20 == 0:
            log.info("%d/%d responses", len(responses), args.num_requests)
    elapsed = time.time() - t0

    for p in clients:
        p.join()

    summary = summarize(responses, elapsed)
    log.info("summary: %s", summary)
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), args.out), "w") as f:
        json.dump(summary, f, indent=2)
    server.terminate()


if __name__ == "__main__":
    main()
