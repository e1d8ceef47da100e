"""Masked language model on alignments; the loader never ends, training is counted in steps."""
import argparse
import logging
import time

import torch
from torch import nn
from torch.utils.data import DataLoader

from data import InfiniteDataset, ProteinMSADataset

log = logging.getLogger("mlm")


class TinyMSA(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.inp = nn.Linear(21, dim)
        self.mix = nn.Conv1d(dim, dim, 5, padding=2)
        self.out = nn.Linear(dim, 21)

    def forward(self, x):
        h = self.inp(x).mean(1)
        h = torch.relu(self.mix(h.transpose(1, 2))).transpose(1, 2)
        return self.out(h)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=3000)
    p.add_argument("--batch-size", type=int, default=4)
    p.add_argument("--num-workers", type=int, default=2)
    p.add_argument("--dataset-size", type=int, default=1_000_000)
    p.add_argument("--mask", type=float, default=0.15)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)

    loader = DataLoader(InfiniteDataset(ProteinMSADataset(args.dataset_size)), batch_size=args.batch_size,
                        num_workers=args.num_workers)
    model = TinyMSA()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    start = time.time()
    for step, batch in enumerate(loader, 1):
        target = batch[:, 0].argmax(-1)
        mask = torch.rand(target.shape) < args.mask
        x = batch * (~mask)[:, None, :, None]
        loss = nn.functional.cross_entropy(model(x)[mask], target[mask])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 25 == 0:
            log.info("step %d loss %.4f %.1f samples/s", step, loss.item(),
                     step * args.batch_size / (time.time() - start))
        if step >= args.steps:
            break


if __name__ == "__main__":
    main()
