"""Compute user features by chaining exchanges with the stage servers."""
import argparse
import logging
import time

import numpy as np

from stages import StageServer
from transport import StageClient

log = logging.getLogger("features")

RECIPES = [
    ("clean", ["normalize"]),
    ("vectors", ["normalize", "embed"]),
    ("clusters", ["normalize", "embed", "nearest"]),
]


def source(rows, batch_size, seed):
    rng = np.random.default_rng(seed)
    for i in range(rows // batch_size):
        yield {"x": rng.standard_normal((batch_size, 64), dtype=np.float32), "id": np.arange(batch_size) + i * batch_size}
        time.sleep(0.02)


def run_recipe(name, stages, clients, args):
    start = time.time()
    batches = source(args.rows, args.batch_size, seed=len(stages))
    for stage in stages:
        batches = clients[stage].exchange(batches)
    rows = 0
    for batch in batches:
        rows += len(batch["id"])
    log.info("%s: %d rows through %s in %.1fs", name, rows, " > ".join(stages), time.time() - start)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--rows", type=int, default=16000)
    p.add_argument("--batch-size", type=int, default=200)
    p.add_argument("--days", type=int, default=2)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")

    names = sorted({s for _, stages in RECIPES for s in stages})
    servers = {name: StageServer(name) for name in names}
    clients = {name: StageClient(name, servers[name].connect) for name in names}
    log.info("stage servers up: %s", ", ".join(f"{n}={s.process.pid}" for n, s in servers.items()))
    for name, stages in RECIPES:
        for day in range(args.days):
            run_recipe(f"{name}/day{day}", stages, clients, args)
    log.info("done")


if __name__ == "__main__":
    main()
