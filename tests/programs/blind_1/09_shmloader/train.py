import argparse
import logging
import time

import torch
from torch import nn

from ring_loader import RingLoader

log = logging.getLogger("train")


def build_model():
    return nn.Sequential(nn.Conv2d(3, 16, 3, 2), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.ReLU(),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))


def calibrate(model, shape, seconds):
    """Estimate activation statistics before training."""
    model.eval()
    t0, n = time.time(), 0
    while time.time() - t0 < seconds:
        with torch.no_grad():
            model(torch.randn(16, *shape))
        n += 1
        time.sleep(0.2)
    log.info("calibration: %d passes", n)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--batch", type=int, default=32)
    ap.add_argument("--res", type=int, default=96)
    ap.add_argument("--steps", type=int, default=300)
    ap.add_argument("--threads", type=int, default=4)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(args.threads)
    shape = (3, args.res, args.res)
    model = build_model()
    calibrate(model, shape, 5.0)
    loader = RingLoader(args.batch, shape)
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    model.train()
    log.info("start training")
    for step, x in enumerate(loader):
        y = torch.randint(0, 10, (args.batch,))
        loss = nn.functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        log.info("step %d loss %.3f", step, loss.item())
        if step >= args.steps:
            break
    loader.close()


if __name__ == "__main__":
    main()
