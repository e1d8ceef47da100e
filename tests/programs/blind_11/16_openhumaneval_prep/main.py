"""Evaluate a small code model on the function-completion benchmark."""
import argparse
import logging
import os
import time

import torch
from torch import nn

from settings import Settings, ensure_raw_problems

log = logging.getLogger("evalcode")


class TinyCodeLM(nn.Module):
    def __init__(self, vocab_size, dim=64):
        super().__init__()
        self.emb = nn.Embedding(vocab_size, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, vocab_size)

    def forward(self, ids):
        h, _ = self.rnn(self.emb(ids))
        return self.out(h)


def warm_up(model, settings):
    ids = torch.randint(0, settings.vocab_size, (8, settings.max_len))
    t0 = time.time()
    steps = 0
    while time.time() - t0 < settings.warmup_seconds:
        with torch.no_grad():
            model(ids)
        steps += 1
    log.info("warm-up: %d forward passes in %.1f s", steps, time.time() - t0)


def evaluate(model, problems, settings):
    model.eval()
    losses = []
    for start in range(0, len(problems), settings.batch_size):
        batch = problems[start:start + settings.batch_size]
        ids = torch.tensor([p["input_ids"] for p in batch])
        with torch.no_grad():
            logits = model(ids[:, :-1])
        losses.append(nn.functional.cross_entropy(
            logits.reshape(-1, logits.size(-1)), ids[:, 1:].reshape(-1)).item())
        if start % (settings.batch_size * 10) == 0:
            log.info("%5d/%d loss %.4f", start, len(problems), losses[-1])
    return sum(losses) / len(losses)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workdir", default=os.path.dirname(os.path.abspath(__file__)))
    parser.add_argument("--num-problems", type=int, default=1640)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO,
                        format="%(asctime)s %(process)d %(name)s: %(message)s")

    settings = Settings(workdir=args.workdir, num_problems=args.num_problems)
    os.environ["EVALCODE_WORKDIR"] = settings.workdir
    ensure_raw_problems(settings)

    torch.manual_seed(0)
    model = TinyCodeLM(settings.vocab_size)
    warm_up(model, settings)

    log.info("loading benchmark")
    import problems
    log.info("benchmark ready: %d problems", len(problems.the_dataset))
    log.info("mean loss %.4f", evaluate(model, problems.the_dataset, settings))


if __name__ == "__main__":
    main()
