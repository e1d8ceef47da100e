"""Trains a probe on stored features while a curator keeps the table free of duplicates."""
import argparse
import logging
import multiprocessing as mp
import os
import tempfile

import torch
from torch import nn

from reader import reader_main
from store import FeatureStore, curator_main

log = logging.getLogger("probe")


class Probe:
    def __init__(self, dim):
        self.net = nn.Linear(dim, dim // 8)

    def loss(self, batch):
        x = torch.from_numpy(batch)
        return (self.net(x) @ self.net.weight - x).pow(2).mean()

    def step(self, batch):
        loss = self.loss(batch)
        self.net.zero_grad()
        loss.backward()
        with torch.no_grad():
            for p in self.net.parameters():
                p.sub_(p.grad, alpha=0.01)
        return loss.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=60000)
    parser.add_argument("--validation-rows", type=int, default=6000)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--curate-every", type=float, default=4.0)
    parser.add_argument("--steps", type=int, default=2400)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="features_") as directory:
        store = FeatureStore(os.path.join(directory, "features.npy"))
        store.create(args.rows)
        training, validation = mp.Queue(8), mp.Queue(8)
        processes = [
            mp.Process(target=reader_main, args=(store, args.validation_rows, None, args.batch_size, 1, training),
                       name="train-reader", daemon=True),
            mp.Process(target=reader_main, args=(store, 0, args.validation_rows, args.batch_size, 2, validation),
                       name="val-reader", daemon=True),
            mp.Process(target=curator_main, args=(store, args.curate_every), name="curator", daemon=True),
        ]
        for process in processes:
            process.start()
        probe = Probe(store.dim)
        for step in range(args.steps):
            loss = probe.step(training.get())
            if step % 50 == 0:
                with torch.no_grad():
                    log.info("step %d train %.4f val %.4f", step, loss, probe.loss(validation.get()).item())


if __name__ == "__main__":
    main()
