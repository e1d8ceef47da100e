"""torchrun --standalone --nproc-per-node 2 train.py"""
import argparse

import torch
import torch.distributed as dist
from torch import nn

from mini_lightning import ProgressPrinter, Trainer
from report_callback import TrainReportCallback


class Session:
    def __init__(self):
        self.world_rank, self.history = dist.get_rank(), []

    def report(self, metrics, checkpoint=None):
        self.history.append((metrics, checkpoint))
        if checkpoint:
            print(f"worker {self.world_rank}: checkpoint of epoch {metrics['epoch']} reported", flush=True)


class AutoEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.dec = nn.Linear(64, 16), nn.Linear(16, 64)

    def training_step(self, i):
        x = torch.randn(32, 64)
        return (self.dec(torch.relu(self.enc(x))) - x).pow(2).mean()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--max-epochs", type=int, default=100)
    ap.add_argument("--batches", type=int, default=25)
    args = ap.parse_args()
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    Trainer(args.max_epochs, [ProgressPrinter(), TrainReportCallback(Session())]).fit(AutoEncoder(), args.batches)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
