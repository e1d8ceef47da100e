"""Frame-wise phoneme classifier, short utterances first and then the long ones."""
import argparse
import logging
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader

from data import FEATS, N_PHONES, UtteranceStream, write_shards

log = logging.getLogger("phoneme")


class FrameTagger(nn.Module):
    def __init__(self, hidden=96):
        super().__init__()
        self.rnn = nn.GRU(FEATS, hidden, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * hidden, N_PHONES)

    def forward(self, x):
        h, _ = self.rnn(x)
        return self.head(h)


def masked_loss(logits, phones, n):
    steps = torch.arange(phones.size(1))[None, :]
    mask = (steps < n[:, None]).float()
    ce = nn.functional.cross_entropy(logits.transpose(1, 2), phones, reduction="none")
    return (ce * mask).sum() / mask.sum()


def run_stage(name, shards, model, opt, steps, args):
    loader = DataLoader(
        UtteranceStream(shards, seed=args.seed),
        batch_size=args.batch_size,
        num_workers=args.workers,
        prefetch_factor=2,
    )
    log.info("stage %s: %d shards, %d steps", name, len(shards), steps)
    t0 = time.time()
    for step, (feats, phones, n) in enumerate(loader):
        if step == steps:
            break
        loss = masked_loss(model(feats), phones, n)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % args.log_every == 0:
            log.info("%s step %d loss %.3f (%.1f s)", name, step, loss.item(), time.time() - t0)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--data", type=Path, default=Path("data"))
    p.add_argument("--workers", type=int, default=4)
    p.add_argument("--batch-size", type=int, default=8)
    p.add_argument("--short-steps", type=int, default=40)
    p.add_argument("--long-steps", type=int, default=2000)
    p.add_argument("--log-every", type=int, default=10)
    p.add_argument("--seed", type=int, default=1)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)

    short = write_shards(args.data, "short", 8, 48, 60, seed=1)
    long = write_shards(args.data, "long", 3, 48, 160, seed=2)

    model = FrameTagger()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    run_stage("short", short, model, opt, args.short_steps, args)
    run_stage("long", long, model, opt, args.long_steps, args)
    torch.save(model.state_dict(), args.data / "tagger.pt")


if __name__ == "__main__":
    main()
