"""Train a click model on three gloo ranks with table placement by a planner."""
import argparse
import datetime
import logging
import os
import socket
import threading

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from model import ClickModel, ShardedTables
from planner import GreedyPlanner, TableConfig

log = logging.getLogger("train")

TABLES = [TableConfig(f"t_{n}", 2000, 16, (n, f"{n}_last7d")) for n in
          ("user", "item", "seller", "category", "country", "device", "query", "hour", "campaign")]
FEATURES = [f for t in TABLES for f in t.features if not f.startswith("hour")]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def batches(rank, size, tables, rows):
    gen = torch.Generator().manual_seed(100 + rank)
    while True:
        ids = torch.randint(0, rows, (size, tables), generator=gen)
        yield ids, (ids.sum(1) % 3 == 0).float()


def reduce_dense(module, world):
    for p in module.parameters():
        dist.all_reduce(p.grad)
        p.grad /= world


def worker(rank, args, port):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s rank{rank} %(name)s %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank,
                            world_size=args.world_size, timeout=datetime.timedelta(minutes=30))
    limit = threading.Timer(args.time_limit, os._exit, args=(0,))
    limit.daemon = True
    limit.start()

    planner = GreedyPlanner(args.world_size, ["dense", "fused"])
    placements = planner.plan(TABLES, FEATURES)
    log.info("plan ready: %d tables, %d here", len(placements),
             sum(p.owner == rank for p in placements.values()))
    model = ClickModel(ShardedTables(TABLES, placements, rank), dim=16)
    dense = torch.optim.Adam(model.over.parameters(), lr=1e-3)
    loss_fn = torch.nn.BCEWithLogitsLoss()
    data = batches(rank, args.batch_size, len(placements), 2000)
    for step, (ids, label) in zip(range(args.steps), data):
        if step % args.publish_every == 0:
            model.tables.publish()
        dense.zero_grad()
        loss = loss_fn(model(ids), label)
        loss.backward()
        model.tables.step(lr=0.1)
        reduce_dense(model.over, args.world_size)
        dense.step()
        if step % 200 == 0:
            log.info("step %d loss %.4f", step, loss.item())
    dist.destroy_process_group()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--world-size", type=int, default=3)
    p.add_argument("--batch-size", type=int, default=64)
    p.add_argument("--steps", type=int, default=50_000)
    p.add_argument("--publish-every", type=int, default=4)
    p.add_argument("--time-limit", type=float, default=125)
    args = p.parse_args()
    mp.start_processes(worker, args=(args, free_port()), nprocs=args.world_size, start_method="spawn")


if __name__ == "__main__":
    main()
