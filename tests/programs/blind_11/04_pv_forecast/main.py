import argparse
import logging
import time

import torch
from torch.nn.functional import l1_loss

from data import DataModule
from model import PVNet

log = logging.getLogger("pvnet")


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--sites", type=int, default=60000)
    parser.add_argument("--frames", type=int, default=400)
    parser.add_argument("--train-samples", type=int, default=512)
    parser.add_argument("--val-samples", type=int, default=128)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--num-workers", type=int, default=2)
    parser.add_argument("--lr", type=float, default=5e-4)
    return parser.parse_args()


def run_loop(model, loader, optimizer=None):
    seen, total = 0, 0.0
    with torch.set_grad_enabled(optimizer is not None):
        for satellite, static, target in loader:
            loss = l1_loss(model(satellite, static), target)
            if optimizer is not None:
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            total += loss.item() * len(target)
            seen += len(target)
    return total / seen, seen


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    data = DataModule(args)
    train_loader, val_loader = data.train_dataloader(), data.val_dataloader()
    model = PVNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    log.info("%d sites, %d train / %d val samples", args.sites, len(data.train), len(data.val))

    for epoch in range(args.epochs):
        started = time.time()
        train_mae, seen = run_loop(model, train_loader, optimizer)
        trained = time.time()
        val_mae, _ = run_loop(model, val_loader)
        log.info("epoch %d: train MAE %.3f val MAE %.3f | %.1f samples/s | train %.1fs val %.1fs", epoch, train_mae,
                 val_mae, seen / (trained - started), trained - started, time.time() - trained)


if __name__ == "__main__":
    main()
