"""Two rankers train on features that a small gateway serves out of sqlite."""
import argparse
import json
import logging
import multiprocessing as mp
import os
import random
import socket
import sqlite3
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn

import gateway

log = logging.getLogger("ranker")
DIM = 32


def build_db(path, users, items):
    rng = random.Random(7)
    vec = lambda: json.dumps([round(rng.gauss(0, 1), 4) for _ in range(DIM)])
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE features (item INTEGER PRIMARY KEY, vec TEXT)")
    db.execute("CREATE TABLE users (user INTEGER PRIMARY KEY, vec TEXT)")
    db.executemany("INSERT INTO features VALUES (?, ?)", ((i, vec()) for i in range(items)))
    db.executemany("INSERT INTO users VALUES (?, ?)", ((u, vec()) for u in range(users)))
    db.commit()
    db.close()


class GatewayClient:
    """One socket per fetch thread."""

    def __init__(self, port):
        self.port = port
        self.local = threading.local()

    def fetch(self, user, items):
        if not hasattr(self.local, "file"):
            sock = socket.create_connection(("127.0.0.1", self.port))
            self.local.file = sock.makefile("rwb")
        f = self.local.file
        f.write(json.dumps({"user": user, "items": items}).encode() + b"\n")
        f.flush()
        return json.loads(f.readline())


class Ranker(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2 * DIM, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, user, items):
        user = user.expand(items.size(0), -1)
        return self.net(torch.cat([user, items], dim=1)).squeeze(1)


def train(rank, port, args):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s ranker{rank} %(message)s", force=True)
    limit = threading.Timer(args.max_seconds, os._exit, (0,))
    limit.daemon = True
    limit.start()
    torch.set_num_threads(1)
    rng = random.Random(rank)
    client = GatewayClient(port)
    model = Ranker()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)

    def one(_):
        return client.fetch(rng.randrange(args.users), rng.sample(range(args.items), 20))

    for epoch in range(args.epochs):
        # the first epoch is the warm-up of the page cache, afterwards fetch ahead
        depth = args.warm_prefetch if epoch == 0 else args.prefetch
        started, total = time.time(), 0.0
        with ThreadPoolExecutor(depth) as fetchers:
            for step in range(args.steps):
                replies = list(fetchers.map(one, range(depth)))
                for reply in replies:
                    user = torch.tensor([reply["profile"]])
                    items = torch.tensor(list(reply["rows"].values()))
                    target = (items @ user[0] > 0).float()
                    loss = nn.functional.binary_cross_entropy_with_logits(
                        model(user, items), target
                    )
                    opt.zero_grad()
                    loss.backward()
                    opt.step()
                    total += loss.item()
                time.sleep(args.step_pause)
        log.info("epoch %d loss %.4f in %.1fs", epoch, total / args.steps / depth,
                 time.time() - started)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--users", type=int, default=500)
    p.add_argument("--items", type=int, default=3000)
    p.add_argument("--epochs", type=int, default=60)
    p.add_argument("--steps", type=int, default=40)
    p.add_argument("--prefetch", type=int, default=8)
    p.add_argument("--warm-prefetch", type=int, default=2)
    p.add_argument("--pool-size", type=int, default=6)
    p.add_argument("--step-pause", type=float, default=0.06)
    p.add_argument("--max-seconds", type=float, default=105)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s main %(message)s")

    with tempfile.TemporaryDirectory(prefix="features_") as folder:
        db_path = os.path.join(folder, "features.db")
        build_db(db_path, args.users, args.items)
        ctx = mp.get_context("fork")
        ours, theirs = ctx.Pipe()
        gw = ctx.Process(target=gateway.serve, name="gateway",
                         args=(db_path, args.pool_size, theirs, args.max_seconds), daemon=True)
        gw.start()
        port = ours.recv()
        rankers = [ctx.Process(target=train, args=(r, port, args), name=f"ranker{r}", daemon=True)
                   for r in range(2)]
        for r in rankers:
            r.start()
        for r in rankers:
            r.join()
        gw.terminate()
        log.info("done")


if __name__ == "__main__":
    main()
