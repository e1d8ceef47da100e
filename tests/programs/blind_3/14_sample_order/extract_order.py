import argparse
import logging
import time

import torch
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
log = logging.getLogger("order")


class CaptionSet(Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        feats = torch.full((32,), float(index % 97))
        return {"index": index, "length": 5 + index % 30, "feats": feats}


class FeaturePass:
    def __init__(self, loader, pause):
        self.loader = loader
        self.pause = pause
        self.order = []
        self.total = 0.0

    def run(self, max_time):
        start = time.time()
        for n, sample in enumerate(self.loader):
            self.order.append(sample["index"])
            self.total += float(sample["feats"].sum())
            time.sleep(self.pause)
            if n % 200 == 0:
                log.info("%d samples, mean %.2f", n, self.total / (n + 1))
            if time.time() - start > max_time:
                break
        return self.order


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--samples", type=int, default=1000000)
    ap.add_argument("--workers", type=int, default=1)
    ap.add_argument("--pause", type=float, default=0.008)
    ap.add_argument("--max-time", type=float, default=80)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    loader = DataLoader(CaptionSet(args.samples), batch_size=1, shuffle=True, num_workers=args.workers)
    order = FeaturePass(loader, args.pause).run(args.max_time)
    log.info("collected %d indices", len(order))


if __name__ == "__main__":
    main()
