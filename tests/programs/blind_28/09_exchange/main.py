"""Score tables through the serving engine with a growing number of client processes."""
import argparse
import logging
import multiprocessing as mp
import time
from multiprocessing.connection import Client

import numpy as np

log = logging.getLogger("client")


def run_client(index: int, address, args):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s[%(process)d] %(message)s")
    rng = np.random.default_rng(index)
    time.sleep(index * args.ramp)
    conn = Client(tuple(address))
    log.info("client %d connected", index)
    done, started = 0, time.monotonic()
    while True:
        rows = rng.standard_normal((args.rows, args.width), dtype=np.float32)
        conn.send({"rows": rows, "plan": args.plan.split(","), "batch": args.batch})
        scores = conn.recv()
        done += 1
        if done % 50 == 0:
            log.info("client %d: %d tables, %.1f/s, mean score %.3f", index, done, done / (time.monotonic() - started), scores.mean())
        time.sleep(args.think)


def main():
    from service import run_service

    parser = argparse.ArgumentParser()
    parser.add_argument("--clients", type=int, default=3)
    parser.add_argument("--ramp", type=float, default=1.0, help="seconds between the starts of two clients")
    parser.add_argument("--plan", default="scale,embed,score")
    parser.add_argument("--rows", type=int, default=2048)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--think", type=float, default=0.01)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s[%(process)d] %(message)s")

    ctx = mp.get_context("spawn")
    ready, child = ctx.Pipe()
    server = ctx.Process(target=run_service, args=(args.width, child), name="service", daemon=True)
    server.start()
    address = ready.recv()
    clients = [ctx.Process(target=run_client, args=(i, address, args), name=f"client-{i}", daemon=True) for i in range(args.clients)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()


if __name__ == "__main__":
    main()
