"""Auto-encoder on tiles of large slides."""
import argparse
import logging
import time

import torch
from torch import nn
from torch.utils.data import DataLoader

from slides import SlideTiles

log = logging.getLogger("slides.train")


def build_model():
    return nn.Sequential(nn.Conv2d(3, 8, 4, stride=4), nn.ReLU(), nn.ConvTranspose2d(8, 3, 4, stride=4), nn.Sigmoid())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slides", type=int, default=220)
    parser.add_argument("--keep", type=int, default=90, help="decoded slides each worker may hold")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=130)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    loader = DataLoader(SlideTiles(args.slides, 50, keep=args.keep), batch_size=args.batch_size, shuffle=True,
                        num_workers=args.workers, persistent_workers=True)
    model = build_model()
    optim = torch.optim.Adam(model.parameters(), lr=1e-3)
    deadline, step = time.monotonic() + args.seconds, 0
    while time.monotonic() < deadline:
        for tiles in loader:
            loss = nn.functional.mse_loss(model(tiles), tiles)
            optim.zero_grad()
            loss.backward()
            optim.step()
            step += 1
            if step % 10 == 0:
                log.info("step %d loss %.4f", step, loss.item())
            if time.monotonic() > deadline:
                break


if __name__ == "__main__":
    main()
