"""Tag classifier for forum posts."""
import argparse
import logging
import os
import threading
import time

import torch
from torch import nn
from torch.utils.data import DataLoader

from posts import ForumPosts

log = logging.getLogger("tags")


class TagClassifier(nn.Module):
    def __init__(self, vocab, dim, tags):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim, padding_idx=0)
        self.conv = nn.Conv1d(dim, dim, 3, padding=1)
        self.head = nn.Linear(dim, tags)

    def forward(self, ids):
        x = self.embed(ids).transpose(1, 2)
        return self.head(torch.relu(self.conv(x)).amax(2))


class Meter:
    def __init__(self):
        self.posts, self.loss, self.batches = 0, 0.0, 0
        self.started = self.since = time.time()

    def add(self, n, loss):
        self.posts += n
        self.loss += loss
        self.batches += 1

    def report(self, step):
        now = time.time()
        log.info("step %d loss %.4f %.1f posts/s (elapsed %.0fs)", step, self.loss / self.batches,
                 self.posts / (now - self.since), now - self.started)
        self.posts, self.loss, self.batches, self.since = 0, 0.0, 0, now


def worker_init(worker_id):
    torch.set_num_threads(1)


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--posts", type=int, default=200_000)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--vocab", type=int, default=30_000)
    p.add_argument("--dim", type=int, default=48)
    p.add_argument("--max-len", type=int, default=128)
    p.add_argument("--paste-rate", type=float, default=0.04)
    p.add_argument("--paste-len", type=int, default=23)
    p.add_argument("--log-every", type=int, default=5)
    p.add_argument("--max-seconds", type=float, default=105)
    return p.parse_args()


def main():
    args = parse()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    data = ForumPosts(args.posts, args.vocab, args.max_len, args.paste_rate, args.paste_len)
    loader = DataLoader(data, batch_size=args.batch, num_workers=args.workers, shuffle=True,
                        worker_init_fn=worker_init, prefetch_factor=2)
    model = TagClassifier(args.vocab, args.dim, 8)
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    meter, deadline = Meter(), time.time() + args.max_seconds
    limit = threading.Timer(args.max_seconds + 10, os._exit, (0,))
    limit.daemon = True
    limit.start()
    for step, (ids, tags) in enumerate(loader, 1):
        loss = nn.functional.cross_entropy(model(ids), tags)
        opt.zero_grad()
        loss.backward()
        opt.step()
        meter.add(len(ids), loss.item())
        if step % args.log_every == 0:
            meter.report(step)
        if time.time() > deadline:
            log.info("time limit reached at step %d", step)
            break


if __name__ == "__main__":
    main()
