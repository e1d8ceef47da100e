"""Train a 2D U-Net on axial slices of 3D volumes."""
import argparse
import logging
import tempfile
import time

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

from dataset import SliceDataset
from synth import write_cases
from unet import UNet2D

log = logging.getLogger("train")


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--cases", type=int, default=4)
    p.add_argument("--shape", type=int, nargs=3, default=(160, 224, 224))
    p.add_argument("--batch-size", type=int, default=12)
    p.add_argument("--num-workers", type=int, default=2)
    p.add_argument("--epochs", type=int, default=50)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--root", default=None)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    root = args.root or write_cases(tempfile.mkdtemp(prefix="task07_"), args.cases, tuple(args.shape))
    data = SliceDataset(root, crop=80)
    loader = DataLoader(data, args.batch_size, shuffle=True, num_workers=args.num_workers,
                        persistent_workers=True, drop_last=True)
    net = UNet2D()
    opt = torch.optim.Adam(net.parameters(), lr=args.lr)
    log.info("%d slices from %d cases, %d batches per epoch", len(data), args.cases, len(loader))
    for epoch in range(args.epochs):
        end = time.time()
        t_data = t_step = 0.0
        for i, (image, label) in enumerate(loader, 1):
            t_data += time.time() - end
            t0 = time.time()
            loss = F.binary_cross_entropy_with_logits(net(image), label)
            opt.zero_grad()
            loss.backward()
            opt.step()
            t_step += time.time() - t0
            if i % 5 == 0:
                log.info("epoch %d [%d/%d] loss %.4f  data %.2fs  step %.2fs", epoch, i, len(loader),
                         loss.item(), t_data / 5, t_step / 5)
                t_data = t_step = 0.0
            end = time.time()


if __name__ == "__main__":
    main()
