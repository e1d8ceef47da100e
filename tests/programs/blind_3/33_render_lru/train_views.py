import argparse
import logging
import time

import torch
from torch import nn
from torch.utils.data import DataLoader

from views import ChunkedViews

torch.set_num_threads(1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--views", type=int, default=400000)
    ap.add_argument("--cache-mb", type=int, default=160)
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--max-time", type=float, default=80)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    log = logging.getLogger("views")
    loader = DataLoader(ChunkedViews(args.views, args.cache_mb), batch_size=8, shuffle=True,
                        num_workers=args.workers, persistent_workers=True)
    net = nn.Sequential(nn.Flatten(), nn.Linear(1024, 64), nn.ReLU(), nn.Linear(64, 10))
    opt = torch.optim.SGD(net.parameters(), lr=0.01)
    start = time.time()
    for step, (x, y) in enumerate(loader):
        loss = nn.functional.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        time.sleep(0.1)
        if step % 30 == 0:
            log.info("step %d loss %.3f", step, loss.item())
        if time.time() - start > args.max_time:
            break


if __name__ == "__main__":
    main()
