"""Fit a small energy model on atomic configurations."""
import argparse
import logging
import tempfile
import time

import torch
from torch import nn
from torch.utils.data import DataLoader

from systems import SystemDataset, write_systems

log = logging.getLogger("energy")


class EnergyNet(nn.Module):
    def __init__(self, atoms):
        super().__init__()
        self.atom = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 1))

    def forward(self, coord):
        return self.atom(coord).sum((1, 2))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--sets", type=int, default=3)
    ap.add_argument("--frames", type=int, default=900)
    ap.add_argument("--atoms", type=int, default=192)
    ap.add_argument("--batch-size", type=int, default=32)
    ap.add_argument("--epochs", type=int, default=20)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    root = tempfile.mkdtemp(prefix="systems_")
    write_systems(root, args.sets, args.frames, args.atoms)
    dataset = SystemDataset(root)
    log.info("%d frames in %d sets", len(dataset), len(dataset.files))

    loader = DataLoader(
        dataset, batch_size=args.batch_size, shuffle=True, num_workers=1, persistent_workers=True,
        multiprocessing_context="fork",
    )
    net = EnergyNet(args.atoms)
    opt = torch.optim.Adam(net.parameters(), 1e-3)
    for epoch in range(args.epochs):
        t0 = time.perf_counter()
        for step, batch in enumerate(loader):
            loss = nn.functional.mse_loss(net(batch["coord"]), batch["energy"]) / args.atoms
            opt.zero_grad()
            loss.backward()
            opt.step()
            log.info("epoch %d step %d/%d loss %.3f", epoch, step, len(loader), loss.item())
        log.info("epoch %d took %.1fs", epoch, time.perf_counter() - t0)


if __name__ == "__main__":
    main()
