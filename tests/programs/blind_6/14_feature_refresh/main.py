"""Online training from a feature store: one reader, one refresher, one trainer."""
import argparse
import logging
import multiprocessing as mp
import os
import tempfile
import time

import numpy as np
import torch
from torch import nn

from store import FeatureStore, refresher

log = logging.getLogger("train")


def reader(store, batches, batch_size):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s reader %(message)s", force=True)
    features = store.open()
    log.info("mapped %d rows", len(features))
    rng = np.random.default_rng(0)
    while True:
        idx = np.sort(rng.integers(0, len(features), batch_size))
        batches.put(features[idx])


class AutoEncoder(nn.Module):
    def __init__(self, dim, code=16):
        super().__init__()
        self.enc, self.dec = nn.Linear(dim, code), nn.Linear(code, dim)

    def forward(self, x):
        return self.dec(torch.tanh(self.enc(x)))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--rows", type=int, default=20000)
    ap.add_argument("--batch-size", type=int, default=128)
    ap.add_argument("--steps", type=int, default=20000)
    ap.add_argument("--refresh-every", type=float, default=6.0)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s train %(message)s", force=True)
    torch.set_num_threads(1)
    store = FeatureStore(os.path.join(tempfile.mkdtemp(prefix="features_"), "live.npy"))
    store.write(args.rows, 0)

    batches = mp.Queue(maxsize=8)
    helpers = [
        mp.Process(target=reader, args=(store, batches, args.batch_size), name="reader", daemon=True),
        mp.Process(target=refresher, args=(store, args.rows, args.refresh_every, 0.7),
                   name="refresher", daemon=True),
    ]
    for p in helpers:
        p.start()
    net = AutoEncoder(store.dim)
    opt = torch.optim.Adam(net.parameters(), 1e-3)
    for step in range(1, args.steps + 1):
        x = torch.from_numpy(batches.get())
        loss = nn.functional.mse_loss(net(x), x)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 50 == 0:
            log.info("step %d loss %.4f", step, loss.item())
        time.sleep(0.02)
    log.info("done")


if __name__ == "__main__":
    main()
