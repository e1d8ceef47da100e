"""Few-shot classifier, many short epochs."""
import argparse
import logging
import os
import tempfile
import time

import torch
from torch import nn
from torch.utils.data import DataLoader

from data import FewShotDigits, init_worker, write_templates

log = logging.getLogger("fit")


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--epochs", type=int, default=200)
    p.add_argument("--batch-size", type=int, default=32)
    p.add_argument("--workers", type=int, default=2)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)

    tmp = tempfile.TemporaryDirectory(prefix="strokes-")
    templates = os.path.join(tmp.name, "templates.jsonl")
    write_templates(templates)
    loader = DataLoader(FewShotDigits(templates), batch_size=args.batch_size, shuffle=True,
                        num_workers=args.workers, worker_init_fn=init_worker)
    model = nn.Sequential(nn.Conv2d(1, 8, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8 * 144, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
    for epoch in range(args.epochs):
        started, total = time.monotonic(), 0.0
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        log.info("epoch %3d loss %.4f (%d batches in %.2f s)", epoch, total / len(loader), len(loader),
                 time.monotonic() - started)


if __name__ == "__main__":
    main()
