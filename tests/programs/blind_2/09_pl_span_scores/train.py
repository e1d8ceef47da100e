import argparse

import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader, TensorDataset

from module import SpanScorer


def make_data(n, dim, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, dim, generator=g)
    y = (x[:, :4].sum(1) + 0.3 * torch.randn(n, generator=g) > 0).float()
    return TensorDataset(x, y)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--devices", type=int, default=2)
    p.add_argument("--epochs", type=int, default=20)
    p.add_argument("--batch-size", type=int, default=64)
    args = p.parse_args()
    torch.set_num_threads(1)
    pl.seed_everything(7)
    trainer = pl.Trainer(accelerator="cpu", devices=args.devices, strategy="ddp", max_epochs=args.epochs,
                         logger=False, enable_checkpointing=False, enable_progress_bar=False,
                         num_sanity_val_steps=0)
    trainer.fit(SpanScorer(), DataLoader(make_data(8192, 32, 0), args.batch_size, shuffle=True),
                DataLoader(make_data(2048, 32, 1), args.batch_size))


if __name__ == "__main__":
    main()
