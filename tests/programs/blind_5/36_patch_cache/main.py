import argparse
import logging
import time

import torch
from torch import nn
from torch.utils.data import DataLoader

from patches import PatchDataset

log = logging.getLogger("patches")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--volumes", type=int, default=200)
    p.add_argument("--patches", type=int, default=100)
    p.add_argument("--side", type=int, default=96)
    p.add_argument("--capacity", type=int, default=50)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--interval", type=float, default=0.15)
    p.add_argument("--epochs", type=int, default=10)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    data = PatchDataset(args.volumes, args.patches, args.side, args.capacity)
    loader = DataLoader(data, batch_size=4, shuffle=True, num_workers=args.workers, persistent_workers=True)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16 ** 3, 2))
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(args.epochs):
        for step, (x, y) in enumerate(loader):
            t0 = time.time()
            loss = nn.functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 20 == 0:
                log.info("epoch %d step %d loss %.4f", epoch, step, loss.item())
            time.sleep(max(0.0, args.interval - (time.time() - t0)))


if __name__ == "__main__":
    main()
