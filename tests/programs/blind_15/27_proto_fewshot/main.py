"""Episodic training of a prototypical network."""
import argparse
import logging
import time

import torch
from torch.utils.data import DataLoader

from dataset import ClassDataset, EpisodicBatchSampler
from model import Protonet

log = logging.getLogger("proto")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--duration", type=float, default=95)
    p.add_argument("--classes", type=int, default=60)
    p.add_argument("--per-class", type=int, default=20)
    p.add_argument("--size", type=int, default=112)
    p.add_argument("--way", type=int, default=5)
    p.add_argument("--support", type=int, default=5)
    p.add_argument("--query", type=int, default=10)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--out", default="protonet.pt")
    p.add_argument("--report", type=float, default=5)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dataset = ClassDataset(args.classes, args.per_class, args.size)
    sampler = EpisodicBatchSampler(args.classes, args.way, args.support, args.query)
    loader = DataLoader(dataset, batch_size=args.way, sampler=sampler, num_workers=args.workers,
                        persistent_workers=True, prefetch_factor=4)
    model = Protonet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    start = last = time.time()
    episodes, n, total_loss, total_acc = 0, 0, 0.0, 0.0
    for episode in loader:
        loss, acc = model.loss(episode["support"], episode["query"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        episodes += 1
        n += 1
        total_loss += loss.item()
        total_acc += acc
        now = time.time()
        if now - last > args.report:
            log.info("episode %d: %.1f it/s, loss %.3f, accuracy %.3f", episodes, n / (now - last), total_loss / n,
                     total_acc / n)
            last, n, total_loss, total_acc = now, 0, 0.0, 0.0
        if now - start > args.duration:
            break
    torch.save(model.state_dict(), args.out)
    log.info("done after %d episodes", episodes)


if __name__ == "__main__":
    main()
