import argparse
import logging
import time

import torch
from torch.utils.data import DataLoader

from passages import PassageDataset

log = logging.getLogger("index")


class IndexBuilder:
    def __init__(self, dim):
        self.proj = torch.nn.Linear(64, dim)
        self.ids = []
        self.norms = []

    @torch.no_grad()
    def add(self, batch):
        vec = self.proj(batch["features"])
        self.norms.append(vec.norm(dim=1).mean().item())
        self.ids.append(batch["id"])

    def finish(self):
        return torch.cat(self.ids), sum(self.norms) / len(self.norms)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--passages", type=int, default=16000)
    p.add_argument("--batch-size", type=int, default=4)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--dim", type=int, default=32)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    loader = DataLoader(PassageDataset(args.passages), batch_size=args.batch_size, num_workers=args.workers)
    builder = IndexBuilder(args.dim)
    t0 = time.time()
    for n, batch in enumerate(loader):
        builder.add(batch)
        if n % 50 == 0:
            log.info("%d passages indexed, %.1f batches/s", n * args.batch_size, (n + 1) / (time.time() - t0))
    ids, norm = builder.finish()
    log.info("index of %d passages, mean norm %.3f", len(ids), norm)


if __name__ == "__main__":
    main()
