"""Single-shot detector on cropped traffic scenes."""
import argparse
import logging
import time

import torch
from torch import nn
from torch.utils.data import DataLoader

from optim import MomentumSgd
from dataset import AnnotationIndex, CropDetectionDataset

log = logging.getLogger("detector")


class TinySsd(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=4), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(16, 32)

    def forward(self, x):
        return self.head(self.body(x)).view(-1, 8, 4)


def worker_init(worker_id):
    torch.set_num_threads(1)


def main(args):
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    data = CropDetectionDataset(AnnotationIndex(args.images, args.seed))
    loader = DataLoader(data, batch_size=args.batch_size, shuffle=True, num_workers=args.workers,
                        generator=torch.Generator().manual_seed(args.seed),
                        worker_init_fn=worker_init, persistent_workers=True)
    model = TinySsd()
    opt = MomentumSgd(model.parameters(), lr=1e-2)
    for epoch in range(args.epochs):
        t0 = time.monotonic()
        for step, (images, boxes, counts) in enumerate(loader):
            mask = (torch.arange(8)[None] < counts[:, None]).unsqueeze(-1)
            loss = ((model(images) - boxes).abs() * mask).sum() / mask.sum()
            opt.zero_grad()
            loss.backward()
            opt.step()
            time.sleep(args.step_time)
            if step % 10 == 0:
                log.info("epoch %d step %d/%d loss %.4f %.1f img/s", epoch, step, len(loader), loss.item(),
                         (step + 1) * args.batch_size / (time.monotonic() - t0))


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--images", type=int, default=1200)
    ap.add_argument("--batch-size", type=int, default=8)
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--epochs", type=int, default=500)
    ap.add_argument("--step-time", type=float, default=0.08)
    ap.add_argument("--seed", type=int, default=32)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    main(ap.parse_args())
