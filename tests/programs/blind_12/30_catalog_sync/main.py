"""Synchronises the catalog with two client processes against a rate-limited API."""
import argparse
import logging
import multiprocessing as mp
import time

from api_server import server_main
from client import sync_main

log = logging.getLogger("main")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--clients", type=int, default=2)
    parser.add_argument("--items", type=int, default=220)
    parser.add_argument("--concurrency", type=int, default=5)
    parser.add_argument("--per-window", type=int, default=20)
    parser.add_argument("--window", type=float, default=10.0)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    ours, theirs = mp.Pipe()
    server = mp.Process(target=server_main, args=(theirs, args.per_window, args.window), name="api", daemon=True)
    server.start()
    port = ours.recv()
    results = mp.Queue()
    skus = [f"sku{i:05d}" for i in range(args.items)]
    clients = [mp.Process(target=sync_main, name=f"sync-{c}",
                          args=(port, skus[c::args.clients], args.concurrency, results)) for c in range(args.clients)]
    for c in clients:
        c.start()
    started, stock, open_clients = time.monotonic(), {}, len(clients)
    while open_clients:
        item = results.get()
        if item is None:
            open_clients -= 1
        else:
            stock[item["sku"]] = item["stock"]
    for c in clients:
        c.join()
    log.info("%d items in %.0f s, %d in stock", len(stock), time.monotonic() - started,
             sum(1 for v in stock.values() if v))


if __name__ == "__main__":
    main()
