"""Re-ranking gateway with a load generator (two client processes)."""
import argparse
import asyncio
import json
import logging
import multiprocessing as mp
import random
import socket

from gateway import Gateway
from scorer import scorer_main

TOPICS = "battery engine winter recipe garden travel museum python tensor river".split()


def client_main(index, port, requests):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s client-{index} %(message)s", force=True)
    rng = random.Random(index)
    with socket.create_connection(("127.0.0.1", port)) as sock:
        f = sock.makefile("rw")
        for i in range(requests):
            n = 40 if i >= 25 and rng.random() < 0.1 else rng.randint(4, 12)
            passages = [" ".join(rng.choices(TOPICS, k=12)) for _ in range(n)]
            query = " ".join(rng.choices(TOPICS, k=3))
            f.write(json.dumps({"id": i, "query": query, "passages": passages}) + "\n")
            f.flush()
            reply = json.loads(f.readline())
            if i % 10 == 0:
                logging.info("reply %d best %.3f", reply["id"], max(reply["scores"]))


async def serve(args):
    parent, child = mp.Pipe()
    scorer = mp.Process(target=scorer_main, args=(child,), name="scorer", daemon=True)
    scorer.start()
    child.close()
    gateway = Gateway(parent)
    server = await asyncio.start_server(gateway.handle, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    logging.info("listening on %d", port)
    clients = [
        mp.Process(target=client_main, args=(i, port, args.requests), name=f"client-{i}")
        for i in range(args.clients)
    ]
    for c in clients:
        c.start()
    while any(c.is_alive() for c in clients):
        await asyncio.sleep(0.5)
    server.close()
    logging.info("load finished, %d requests served", gateway.served)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--clients", type=int, default=2)
    ap.add_argument("--requests", type=int, default=3000)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s gateway %(message)s", force=True)
    mp.set_start_method("fork")
    asyncio.run(serve(args))


if __name__ == "__main__":
    main()
