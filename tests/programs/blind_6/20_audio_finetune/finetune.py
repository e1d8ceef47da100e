"""Finetune the audio adapter."""
import argparse
import logging
import time

import torch
from torch import nn
from torch.utils.data import DataLoader

from datasets import LazyAudioDataset, collate

log = logging.getLogger("finetune")


class Adapter(nn.Module):
    def __init__(self, mels=64, dim=48, vocab=257):
        super().__init__()
        self.inp = nn.Linear(mels, dim)
        self.mix = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, vocab)

    def forward(self, mel):
        return self.out(self.mix(self.inp(mel))[0])


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--samples", type=int, default=60000)
    ap.add_argument("--batch-size", type=int, default=8)
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--steps-per-second", type=float, default=9.0)
    ap.add_argument("--epochs", type=int, default=3)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    loader = DataLoader(
        LazyAudioDataset(args.samples), batch_size=args.batch_size, shuffle=True, collate_fn=collate,
        num_workers=args.workers, persistent_workers=True, multiprocessing_context="fork",
    )
    net = Adapter()
    opt = torch.optim.AdamW(net.parameters(), 1e-3)
    for epoch in range(args.epochs):
        for step, batch in enumerate(loader, 1):
            t0 = time.perf_counter()
            logits = net(batch["mel"])[:, :32]
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch["tokens"].flatten())
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 25 == 0:
                log.info("epoch %d step %d/%d loss %.3f", epoch, step, len(loader), loss.item())
            time.sleep(max(0.0, 1 / args.steps_per_second - (time.perf_counter() - t0)))


if __name__ == "__main__":
    main()
