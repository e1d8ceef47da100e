"""Self-supervised monocular depth on synthetic video, epoch based trainer."""
import argparse
import logging

import torch
from torch.utils.data import DataLoader

from frames import FramePairs
from selfsup import SelfSupModel
from trainer import BasicTrainer


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=20)
    p.add_argument("--pairs", type=int, default=5200)
    p.add_argument("--batch-size", type=int, default=4)
    p.add_argument("--height", type=int, default=80)
    p.add_argument("--width", type=int, default=128)
    p.add_argument("--num-workers", type=int, default=1)
    p.add_argument("--lr", type=float, default=2e-4)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = FramePairs(args.pairs, args.height, args.width)
    loader = DataLoader(data, args.batch_size, num_workers=args.num_workers, shuffle=True, drop_last=True)
    model = SelfSupModel()
    opt = torch.optim.Adam(model.parameters(), lr=args.lr)
    BasicTrainer(args.epochs).fit(model, opt, loader)


if __name__ == "__main__":
    main()
