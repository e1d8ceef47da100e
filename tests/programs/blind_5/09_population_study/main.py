import argparse
import logging
import multiprocessing as mp
import tempfile
import time
from pathlib import Path

import torch
from torch import nn

from storage import Storage, TrialPruned

log = logging.getLogger("study")


def objective(lr, steps):
    torch.manual_seed(1)
    net = nn.Linear(16, 1)
    for _ in range(steps):
        x = torch.randn(64, 16)
        loss = (net(x) - x.sum(1, keepdim=True)).pow(2).mean()
        grads = torch.autograd.grad(loss, list(net.parameters()))
        with torch.no_grad():
            for p, g in zip(net.parameters(), grads):
                p -= lr * g
        time.sleep(0.005)
    return loss.item()


def worker(name, path, args):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s {name} %(message)s")
    torch.set_num_threads(1)
    storage = Storage(path)
    for generation in range(args.generations):
        while (row := storage.claim(generation)) is not None:
            rowid, member, lr = row
            value = objective(lr * args.lr_scale, args.steps)
            try:
                storage.finish(rowid, value)
                log.info("generation %d member %d lr %.3f value %.4g", generation, member, lr, value)
            except TrialPruned as exc:
                log.info("generation %d member %d pruned: %s", generation, member, exc)
                break
        storage.wait_for_generation(generation)
    log.info("all generations done")


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--workers", type=int, default=3)
    p.add_argument("--generations", type=int, default=20)
    p.add_argument("--members", type=int, default=9)
    p.add_argument("--steps", type=int, default=80)
    p.add_argument("--lr-scale", type=float, default=1.0)
    args = p.parse_args()
    db = str(Path(tempfile.mkdtemp(prefix="study_")) / "study.db")
    Storage(db).create(args.generations, args.members)
    procs = [mp.Process(target=worker, args=(f"w{i}", db, args)) for i in range(args.workers)]
    for q in procs:
        q.start()
    for q in procs:
        q.join()
