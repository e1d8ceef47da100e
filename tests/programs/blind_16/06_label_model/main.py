"""Fits a linear-chain label model to the votes of labeling functions on a large token corpus."""
import argparse
import logging

import torch

from label_model import LearningConfig, LinkedLabelModel
from votes import make_loader

log = logging.getLogger("labelmodels")


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--sequences", type=int, default=20_000_000)
    p.add_argument("--length", type=int, default=6)
    p.add_argument("--functions", type=int, default=16)
    p.add_argument("--classes", type=int, default=5)
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--batch-size", type=int, default=1024)
    p.add_argument("--workers", type=int, default=2)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(0)

    config = LearningConfig(epochs=args.epochs, batch_size=args.batch_size, step_size=0.01)
    loader = make_loader(args.sequences, args.length, args.functions, args.classes,
                         config.batch_size, args.workers)
    model = LinkedLabelModel(args.classes, args.functions)
    model.estimate(loader, config)


if __name__ == "__main__":
    main()
