"""Trains a small pose detector on structured batches."""
import argparse
import logging
import time

import torch
import torch.nn as nn
from torch.utils.data import DataLoader

from dataset import PoseDetectionDataset, collate

log = logging.getLogger("train")


class PoseNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 16, 5, stride=4), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(),
                                  nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.box = nn.Linear(32, 4)
        self.cls = nn.Linear(32, 10)

    def forward(self, images):
        h = self.body(images)
        return self.box(h), self.cls(h)


def compute_loss(boxes, logits, batch):
    target_boxes = torch.stack([anns[0].box for anns in batch.annotations])
    target_labels = torch.stack([anns[0].label for anns in batch.annotations])
    return nn.functional.l1_loss(boxes, target_boxes) + nn.functional.cross_entropy(logits, target_labels)


def warmup(model, dataset, opt, batches, batch_size):
    for b in range(batches):
        batch = collate([dataset[b * batch_size + i] for i in range(batch_size)])
        loss = compute_loss(*model(batch.images), batch)
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--warmup-batches", type=int, default=20)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(0)

    dataset = PoseDetectionDataset()
    model = PoseNet()
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    t0 = time.perf_counter()
    loss = warmup(model, dataset, opt, args.warmup_batches, args.batch_size)
    log.info("warmup in process: loss %.3f, %.1f samples/s", loss,
             args.warmup_batches * args.batch_size / (time.perf_counter() - t0))

    loader = DataLoader(dataset, batch_size=args.batch_size, shuffle=True, num_workers=args.workers,
                        collate_fn=collate, persistent_workers=True)
    for epoch in range(args.epochs):
        t_data = t_step = 0.0
        mark = time.perf_counter()
        for i, batch in enumerate(loader):
            now = time.perf_counter()
            t_data += now - mark
            loss = compute_loss(*model(batch.images), batch)
            opt.zero_grad()
            loss.backward()
            opt.step()
            mark = time.perf_counter()
            t_step += mark - now
            if i % 5 == 4:
                log.info("epoch %d batch %d loss %.3f %.1f samples/s (data %.0f%%)", epoch, i + 1, loss.item(),
                         5 * args.batch_size / (t_data + t_step), 100 * t_data / (t_data + t_step))
                t_data = t_step = 0.0


if __name__ == "__main__":
    main()
