import argparse
import logging
import os
import shutil
import time

import torch
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn

from checkpoint import StagedCheckpointer
from feed import feed_process

log = logging.getLogger("trainer")


class Forecaster(nn.Module):
    def __init__(self, channels, dim, layers):
        super().__init__()
        self.inp = nn.Linear(channels, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.mlps = nn.ModuleList(nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 2 * dim), nn.GELU(),
                                                nn.Linear(2 * dim, dim)) for _ in range(layers))
        self.out = nn.Linear(dim, channels)

    def forward(self, x):
        h = self.rnn(self.inp(x))[0][:, -4:]
        for mlp in self.mlps:
            h = h + mlp(h)
        return self.out(h)


class RunningNormalizer:
    """Mean and scale of the channels over the most recent windows (a ring on the device)."""

    def __init__(self, channels, capacity, window, device):
        self.ring = torch.zeros(capacity, window, channels, device=device)
        self.filled = 0

    def update(self, batch):
        rows = batch[:, :self.ring.size(1)]
        index = (torch.arange(rows.size(0), device=rows.device) + self.filled) % self.ring.size(0)
        self.ring[index] = rows
        self.filled += rows.size(0)

    def __call__(self, x):
        seen = self.ring[:min(self.filled, self.ring.size(0))]
        return (x - seen.mean((0, 1))) / (seen.std((0, 1)) + 1e-3)


def train(args, device, inbox, checkpointer):
    torch.manual_seed(args.seed)
    model = Forecaster(args.channels, args.dim, args.layers).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    normalizer = RunningNormalizer(args.channels, args.ring, args.window, device)
    log.info("%.1f M parameters on %s", sum(p.numel() for p in model.parameters()) / 1e6, device)
    waited, last_save, last_log = 0.0, time.monotonic(), time.monotonic()
    step = 0
    while True:
        began = time.monotonic()
        number, batch = inbox.get()
        waited += time.monotonic() - began
        batch = torch.from_numpy(batch).to(device)
        normalizer.update(batch)
        batch = normalizer(batch)
        loss = F.mse_loss(model(batch[:, :-4]), batch[:, -4:])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        step += 1
        if step % args.log_every == 0:
            now = time.monotonic()
            log.info("window %d loss %.4f | %d windows queued | waited %.0f %% of the time for the feed", number,
                     loss.item(), inbox.qsize(), 100 * waited / (now - last_log))
            waited, last_log = 0.0, now
        if time.monotonic() - last_save > args.save_interval:
            last_save = time.monotonic()
            took = checkpointer.save(step, model, optimizer)
            log.info("step %d staged in %.2f s", step, took)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--windows-per-second", type=float, default=4.0)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--window", type=int, default=16)
    parser.add_argument("--channels", type=int, default=24)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--ring", type=int, default=4096)
    parser.add_argument("--lr", type=float, default=2e-4)
    parser.add_argument("--log-every", type=int, default=20)
    parser.add_argument("--save-interval", type=float, default=14.0)
    parser.add_argument("--staging-slots", type=int, default=2)
    parser.add_argument("--write-mb", type=float, default=9.0)
    parser.add_argument("--keep", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s [trainer] %(message)s")
    torch.set_num_threads(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    directory = os.path.join(os.path.dirname(os.path.abspath(__file__)), "checkpoints")
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)
    ctx = mp.get_context("spawn")
    checkpointer = StagedCheckpointer(ctx, directory, args)
    inbox = ctx.Queue(maxsize=64)
    ctx.Process(target=feed_process, args=(args, inbox), name="feed", daemon=True).start()
    train(args, device, inbox, checkpointer)


if __name__ == "__main__":
    main()
