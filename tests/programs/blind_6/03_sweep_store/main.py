"""Small learning-rate/width sweep with median-style pruning."""
import argparse
import itertools
import logging
import multiprocessing as mp
import os
import tempfile

import torch
from torch import nn

from pruner import pruner_main
from storage import TrialStore

log = logging.getLogger("sweep")


def fit(lr, width, epochs, should_stop):
    g = torch.Generator().manual_seed(1)
    x = torch.randn(512, 16, generator=g)
    y = torch.sin(x.sum(1, keepdim=True))
    net = nn.Sequential(nn.Linear(16, width), nn.Tanh(), nn.Linear(width, 1))
    opt = torch.optim.SGD(net.parameters(), lr=lr)
    for epoch in range(epochs):
        for xb, yb in zip(x.split(64), y.split(64)):
            loss = nn.functional.mse_loss(net(xb), yb)
            opt.zero_grad()
            loss.backward()
            opt.step()
        value = nn.functional.mse_loss(net(x), y).item()
        if should_stop(epoch, value):
            return value, "PRUNED"
    return value, "COMPLETE"


def worker_main(index, path, conn, epochs):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s worker-{index} %(message)s", force=True)
    torch.set_num_threads(1)
    store = TrialStore(path)
    while True:
        waiting = store.waiting()
        if not waiting:
            break
        trial, lr, width = waiting[index % len(waiting)]
        if not store.start(trial, os.getpid()):
            continue
        log.info("trial %d lr=%g width=%d", trial, lr, width)

        def should_stop(epoch, value):
            conn.send((trial, epoch, value))
            return conn.recv()

        value, state = fit(lr, width, epochs, should_stop)
        store.finish(trial, value, state)
        log.info("trial %d %s %.4f", trial, state, value)
    conn.send(None)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--epochs", type=int, default=12)
    ap.add_argument("--db", default=None)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s main %(message)s", force=True)
    path = args.db or os.path.join(tempfile.mkdtemp(prefix="sweep_"), "trials.db")
    store = TrialStore(path)
    store.create(list(itertools.product([0.3, 0.1, 0.03, 0.01], [16, 32, 64])))
    torch.set_num_threads(1)
    log.info("%d trials in %s", len(store.waiting()), path)

    store.db.close()

    ctx = mp.get_context("fork")
    pairs = [ctx.Pipe() for _ in range(args.workers)]
    pruner = ctx.Process(target=pruner_main, args=(path, [a for a, _ in pairs], 1.5), name="pruner")
    workers = [
        ctx.Process(target=worker_main, args=(i, path, pairs[i][1], args.epochs), name=f"worker-{i}")
        for i in range(args.workers)
    ]
    for p in [pruner, *workers]:
        p.start()
    for p in [*workers, pruner]:
        p.join()
    rows = TrialStore(path).db.execute("SELECT id, value, state FROM trials ORDER BY value").fetchall()
    log.info("best trial %s", rows[0])


if __name__ == "__main__":
    main()
