"""Two row servers with warm caches feed a probe model."""
import argparse
import logging
import multiprocessing as mp
import time

import numpy as np
import torch
from torch import nn

from rows import RowReader

log = logging.getLogger("probe")


def row_server(index, out, groups, cache_mb, rate):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s server-{index} %(message)s", force=True)
    reader, rng = RowReader(groups, cache_mb), np.random.default_rng(index)
    for n in range(1, 10**9):
        out.put(reader.batch(rng, 64))
        if n % 100 == 0:
            c = reader.cache
            logging.info("%d batches, cache %d MiB, hits %d misses %d", n, c.nbytes >> 20, c.hits, c.misses)
        time.sleep(1 / rate)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--groups", type=int, default=5000)
    ap.add_argument("--cache-mb", type=int, default=120)
    ap.add_argument("--rate", type=float, default=10.0)
    ap.add_argument("--batches", type=int, default=20000)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s probe %(message)s", force=True)
    torch.set_num_threads(1)
    out = mp.Queue(maxsize=8)
    servers = [
        mp.Process(target=row_server, args=(i, out, args.groups, args.cache_mb, args.rate), daemon=True)
        for i in range(2)
    ]
    for s in servers:
        s.start()
    net = nn.Sequential(nn.Linear(512, 32), nn.ReLU(), nn.Linear(32, 512))
    opt = torch.optim.Adam(net.parameters(), 1e-3)
    for step in range(1, args.batches + 1):
        x = torch.from_numpy(out.get())
        loss = nn.functional.mse_loss(net(x), x)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 100 == 0:
            log.info("step %d loss %.4f", step, loss.item())
    log.info("done")


if __name__ == "__main__":
    main()
