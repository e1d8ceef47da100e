"""Trains a small dialogue model; batches are built by background processes."""
import argparse
import logging
import multiprocessing as mp
import os
import sys
import tempfile
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from torch import nn

from corpus import write_corpus
from workers import BackgroundWorld

log = logging.getLogger("train")


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--datapath", default=None, help="folder with *.jsonl shards; a sample corpus is written when missing")
    p.add_argument("--num-workers", type=int, default=3)
    p.add_argument("--batchsize", type=int, default=12)
    p.add_argument("--max-train-steps", type=int, default=100_000)
    p.add_argument("--max-train-time", type=float, default=1800)
    p.add_argument("--log-every-n-secs", type=float, default=5)
    return p.parse_args()


class Seq2Vec(nn.Module):
    def __init__(self, vocab=4096, dim=64):
        super().__init__()
        self.emb = nn.EmbeddingBag(vocab, dim, padding_idx=0)
        self.context = nn.Linear(dim, dim)

    def forward(self, text, label):
        scores = self.context(self.emb(text)) @ self.emb(label).T
        return nn.functional.cross_entropy(scores, torch.arange(len(text)))


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(name)s: %(message)s", stream=sys.stdout)
    datapath = args.datapath or tempfile.mkdtemp(prefix="dialogues-")
    if args.datapath is None:
        write_corpus(datapath, shards=args.num_workers)

    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = Seq2Vec()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    world = BackgroundWorld(datapath, args.num_workers, args.batchsize, mp.get_context("fork"))

    start = last = time.monotonic()
    step = last_step = 0
    examples = 0
    while step < args.max_train_steps and time.monotonic() - start < args.max_train_time:
        batch = world.next_batch()
        loss = model(batch["text_vec"], batch["label_vec"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        examples += len(batch["text_vec"])
        now = time.monotonic()
        if now - last > args.log_every_n_secs:
            log.info("%.0fs elapsed, %d steps, %d exs, %.1f exs/s, loss %.3f", now - start, step, examples,
                     (step - last_step) * args.batchsize / (now - last), loss.item())
            last, last_step = now, step
    world.shutdown()


if __name__ == "__main__":
    main()
