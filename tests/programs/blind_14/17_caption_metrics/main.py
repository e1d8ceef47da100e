"""Self-critical sequence training of a captioner: the reward is a mix of caption metrics."""
import argparse
import logging
import multiprocessing as mp
import time

import torch
from torch import nn

from scorer import serve

WORDS = ("a man woman dog cat rides holds red blue small bike ball on the street under tree "
         "with near sitting standing two people green large").split()


class Captioner(nn.Module):
    def __init__(self, dim, length):
        super().__init__()
        self.length = length
        self.enc = nn.Sequential(nn.Linear(64, dim), nn.ReLU(), nn.Linear(dim, dim), nn.ReLU())
        self.out = nn.Linear(dim, length * (len(WORDS) + 1))

    def forward(self, x):
        return self.out(self.enc(x)).view(len(x), self.length, len(WORDS) + 1)


def to_text(row):
    words = []
    for token in row.tolist():
        if token == len(WORDS):
            break
        words.append(WORDS[token])
    return " ".join(words)


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--batch-size", type=int, default=48)
    p.add_argument("--steps", type=int, default=100000)
    p.add_argument("--score-threads", type=int, default=4)
    p.add_argument("--dim", type=int, default=512)
    p.add_argument("--length", type=int, default=10)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--warmup", type=int, default=50, help="cross-entropy steps before the rewards")
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    conn, other = mp.Pipe()
    server = mp.Process(target=serve, args=(other, args.score_threads), name="scorer", daemon=True)
    server.start()
    other.close()

    model = Captioner(args.dim, args.length)
    opt = torch.optim.Adam(model.parameters(), lr=args.lr)
    gold = torch.randint(0, len(WORDS), (512, args.length))
    ends = (6.5 + 2.2 * torch.randn(512, 1)).round().clamp(0, args.length)
    gold[torch.arange(args.length) >= ends] = len(WORDS)
    feats = torch.randn(512, 64)
    for step in range(args.steps):
        idx = torch.randint(0, len(feats), (args.batch_size,))
        logits = model(feats[idx])
        if step < args.warmup:
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), gold[idx].flatten())
            reward = torch.zeros(1)
            time.sleep(0.02)
        else:
            dist = torch.distributions.Categorical(logits=logits)
            sample = dist.sample()
            pairs = [(to_text(g), to_text(s)) for g, s in zip(gold[idx], sample)]
            conn.send(pairs)
            scores = conn.recv()
            reward = torch.tensor([s["bleu4"] + s["meteor"] + s["rouge_l"] for s in scores])
            logp = dist.log_prob(sample).sum(1)
            loss = -((reward - reward.mean()) * logp).mean()
            time.sleep(0.05)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0:
            logging.info("step %d loss %.3f reward %.3f", step, loss.item(), reward.mean().item())


if __name__ == "__main__":
    main()
