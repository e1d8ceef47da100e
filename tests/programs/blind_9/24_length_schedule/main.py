"""Small attention model with sequence length warm-up, batches come from a generator process."""
import argparse
import logging
import multiprocessing as mp
import time

import numpy as np
import torch
from torch import nn

from optim import MomentumSgd
from schedule import LengthSchedule

log = logging.getLogger("attn")


class Block(nn.Module):
    def __init__(self, vocab, dim):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, vocab)

    def forward(self, t):
        q, k, v = self.qkv(self.emb(t)).chunk(3, -1)
        a = (q @ k.transpose(1, 2) / q.shape[-1] ** 0.5)
        mask = torch.ones(t.shape[1], t.shape[1], dtype=torch.bool).tril()
        return self.out(a.masked_fill(~mask, float("-inf")).softmax(-1) @ v)


def run_generator(schedule, batch, vocab, out):
    rng = np.random.default_rng(0)
    step = 0
    while True:
        out.put(rng.integers(0, vocab, (batch, schedule(step) + 1)))
        step += 1


def main(args):
    torch.set_num_threads(1)
    ctx = mp.get_context("fork")
    schedule = LengthSchedule(args.start, args.maximum, args.every)
    out = ctx.Queue(maxsize=3)
    ctx.Process(target=run_generator, args=(schedule, args.batch, args.vocab, out), name="generator", daemon=True).start()
    model = Block(args.vocab, 64)
    opt = MomentumSgd(model.parameters(), 0.01)
    step, tokens, t0 = 0, 0, time.monotonic()
    while True:
        t = torch.from_numpy(out.get())
        loss = nn.functional.cross_entropy(model(t[:, :-1]).flatten(0, 1), t[:, 1:].flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
        step, tokens = step + 1, tokens + t[:, 1:].numel()
        if step % 10 == 0:
            dt = time.monotonic() - t0
            log.info("step %d length %d of %d, %.2f s/step, %.0f tokens/s", step, t.shape[1] - 1, args.maximum,
                     dt / 10, tokens / dt)
            tokens, t0 = 0, time.monotonic()


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--start", type=int, default=64)
    ap.add_argument("--maximum", type=int, default=1024)
    ap.add_argument("--every", type=int, default=120)
    ap.add_argument("--batch", type=int, default=8)
    ap.add_argument("--vocab", type=int, default=512)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    main(ap.parse_args())
