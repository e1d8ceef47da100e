"""Denoising autoencoder on synthetic slices; batches come from a background process."""
import argparse
import logging
import time

import torch
from torch import nn

from background import background

log = logging.getLogger("denoise")


class SliceSource:
    def __init__(self, side, batch_size, seed=0):
        self.side, self.batch_size = side, batch_size
        self.gen = torch.Generator().manual_seed(seed)

    def batch(self):
        base = torch.randn(self.batch_size, 1, self.side // 8, self.side // 8, generator=self.gen)
        clean = nn.functional.interpolate(base, size=(self.side, self.side), mode="bilinear")
        noisy = clean + 0.3 * torch.randn(clean.shape, generator=self.gen)
        return noisy, clean

    def statistics(self, n):
        """Mean and spread over a few batches, for the normalisation."""
        total = total2 = 0.0
        for _ in range(n):
            x, _ = self.batch()
            total += x.mean().item()
            total2 += x.square().mean().item()
        mean = total / n
        return mean, (total2 / n - mean * mean) ** 0.5

    def batches(self, mean, std):
        def make():
            while True:
                noisy, clean = self.batch()
                yield ((noisy - mean) / std).numpy(), ((clean - mean) / std).numpy()
        return make


def make_net():
    return nn.Sequential(nn.Conv2d(1, 12, 5, padding=2), nn.ReLU(), nn.Conv2d(12, 12, 5, padding=2), nn.ReLU(),
                         nn.Conv2d(12, 1, 5, padding=2))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--side", type=int, default=128)
    p.add_argument("--batch-size", type=int, default=8)
    p.add_argument("--stat-batches", type=int, default=60)
    p.add_argument("--steps", type=int, default=3000)
    p.add_argument("--threads", type=int, default=2)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(args.threads)

    source = SliceSource(args.side, args.batch_size)
    t0 = time.time()
    mean, std = source.statistics(args.stat_batches)
    log.info("mean %.4f std %.4f from %d batches, %.1f s", mean, std, args.stat_batches, time.time() - t0)

    net = make_net()
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    t0 = time.time()
    for step, (noisy, clean) in enumerate(background(source.batches(mean, std))):
        loss = nn.functional.mse_loss(net(torch.from_numpy(noisy)), torch.from_numpy(clean))
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 10 == 0:
            log.info("step %d loss %.4f %.1f s", step, loss.item(), time.time() - t0)
        if step == args.steps:
            break


if __name__ == "__main__":
    main()
