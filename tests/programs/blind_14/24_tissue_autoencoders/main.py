"""One autoencoder per tissue, trained side by side; the parent collects the curves."""
import argparse
import logging
import queue
import time

import torch.multiprocessing as mp

from data import CELLS, Tissue
from worker import train_tissue


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--genes", type=int, default=500)
    p.add_argument("--batch-size", type=int, default=128)
    p.add_argument("--train-size", type=float, default=0.9)
    p.add_argument("--max-epochs", type=int, default=100)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--pace", type=float, default=0.2, help="pause per batch, keeps the node responsive")
    p.add_argument("--seed", type=int, default=0)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    results = mp.Queue()
    workers = {}
    for name, cells in CELLS.items():
        workers[name] = mp.Process(target=train_tissue, args=(Tissue(name, cells), args, results),
                                   name=f"vae-{name}", daemon=True)
        workers[name].start()
    history, finished, last = {name: [] for name in CELLS}, set(), time.monotonic()
    while finished != set(CELLS):
        try:
            name, epoch, value = results.get(timeout=5)
            if epoch == "finished":
                finished.add(name)
            else:
                history[name].append(value)
        except queue.Empty:
            pass
        if time.monotonic() - last > 10:
            last = time.monotonic()
            logging.info("%s", ", ".join(f"{n}: {len(h)} epochs, elbo {h[-1] if h else float('nan'):.1f}"
                                         for n, h in history.items()))
    for p in workers.values():
        p.join()


if __name__ == "__main__":
    main()
