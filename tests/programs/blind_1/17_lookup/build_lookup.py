"""Run the test split once and remember which sample went where."""
import argparse
import logging
import resource
import time

import torch
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("lookup")


class TestSet(Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        time.sleep(0.03)
        return {"index": index, "label": index % 7, "pixels": torch.zeros(16, 16)}


class Lookup:
    def __init__(self):
        self.index, self.labels, self.norms = [], [], []

    def add(self, sample, score):
        self.index.append(sample["index"])
        self.labels.append(sample["label"])
        self.norms.append(score)

    def __len__(self):
        return len(self.index)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--samples", type=int, default=8000)
    ap.add_argument("--workers", type=int, default=2)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    torch.set_num_threads(1)
    loader = DataLoader(TestSet(args.samples), batch_size=1, num_workers=args.workers)
    net, table = torch.nn.Linear(256, 1), Lookup()
    with torch.no_grad():
        for i, sample in enumerate(loader):
            table.add(sample, net(sample["pixels"].flatten(1)).item())
            if i % 200 == 0:
                log.info("%d / %d", i, args.samples)
    torch.save({"index": torch.cat(table.index), "labels": torch.cat(table.labels)}, "/tmp/lookup.pt")
    log.info("wrote %d rows", len(table))


if __name__ == "__main__":
    main()
