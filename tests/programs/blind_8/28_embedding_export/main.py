import argparse
import logging
import time

import torch
from torch import nn
from torch.utils.data import DataLoader

from records import RecordDataset

log = logging.getLogger("export")


class Exporter:
    def __init__(self, model):
        self.model = model.eval()
        self.vectors = []
        self.keys = []

    @torch.no_grad()
    def run(self, loader):
        start = time.time()
        for n, batch in enumerate(loader, 1):
            self.vectors.append(self.model(batch["features"]).numpy())
            self.keys.append(batch["key"])
            if n % 500 == 0:
                log.info("%d batches, %.0f/s", n, n / (time.time() - start))
        return torch.cat(self.keys), self.vectors


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--records", type=int, default=200000)
    p.add_argument("--batch-size", type=int, default=8)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--rate", type=float, default=50)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    loader = DataLoader(RecordDataset(args.records, args.rate), batch_size=args.batch_size, num_workers=args.workers)
    keys, vectors = Exporter(nn.Linear(64, 16)).run(loader)
    log.info("exported %d vectors", len(keys))


if __name__ == "__main__":
    main()
