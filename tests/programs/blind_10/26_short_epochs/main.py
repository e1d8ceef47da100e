"""Meta learning with many short epochs."""
import argparse
import logging
import time

import torch
from torch.utils.data import DataLoader

from episodes import FewShotEpisodes
from meta import MetaTrainer

log = logging.getLogger("meta.main")


def build_loader(args):
    return DataLoader(
        FewShotEpisodes(episodes=args.episodes),
        batch_size=args.batch_size,
        num_workers=args.workers,
        multiprocessing_context="spawn",
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=1000)
    parser.add_argument("--episodes", type=int, default=16)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=130)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    loader = build_loader(args)
    trainer = MetaTrainer()
    deadline = time.monotonic() + args.seconds
    for epoch in range(args.epochs):
        loss, rate = trainer.epoch(loader)
        log.info("epoch %d/%d loss %.4f, %.1f steps/s", epoch, args.epochs, loss, rate)
        if time.monotonic() > deadline:
            break


if __name__ == "__main__":
    main()
