import argparse
import logging
import sys
import time

import torch

from corpus import Corpus
from crf import BiLSTMTagger

log = logging.getLogger("tagger")


def parse_args():
    ap = argparse.ArgumentParser(description="BiLSTM-CRF sequence tagger")
    ap.add_argument("--device", default="cuda:0")
    ap.add_argument("--vocab-size", type=int, default=5000)
    ap.add_argument("--num-tags", type=int, default=16)
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--batches", type=int, default=6000, help="batches per epoch")
    ap.add_argument("--probe-every", type=int, default=8, help="batches between two held-out batches")
    ap.add_argument("--lr", type=float, default=0.002)
    ap.add_argument("--log-every", type=int, default=50)
    return ap.parse_args()


class Tally:
    """Log likelihood summed over the sentences of an epoch."""

    def __init__(self):
        self.total = 0.0
        self.sentences = 0

    def add(self, neg_log_likelihood):
        self.total += neg_log_likelihood.sum()
        self.sentences += len(neg_log_likelihood)

    def mean(self):
        return self.total.item() / max(self.sentences, 1)


def train_epoch(model, corpus, held_out, optimizer, args, epoch):
    tally, started = Tally(), time.time()
    for i, (words, tags) in enumerate(corpus.batches(args.batches)):
        nll = model.neg_log_likelihood(words.to(args.device), tags.to(args.device))
        optimizer.zero_grad(set_to_none=True)
        nll.mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        if i % args.probe_every == 0:
            probe_words, probe_tags = held_out[(i // args.probe_every) % len(held_out)]
            tally.add(model.neg_log_likelihood(probe_words, probe_tags))
        if i % args.log_every == 0:
            rate = (i + 1) * corpus.batch_size / (time.time() - started)
            log.info("epoch %d batch %d nll %.3f held-out %.3f (%.0f sentences/s)", epoch, i, nll.mean().item(), tally.mean(), rate)
    return tally.mean()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(asctime)s %(message)s")
    torch.manual_seed(0)
    torch.set_num_threads(2)
    corpus = Corpus(args.vocab_size, args.num_tags)
    held_out_corpus = Corpus(args.vocab_size, args.num_tags, batch_size=32, seed=1, read_time=0.0)
    held_out = [(w.to(args.device), t.to(args.device)) for w, t in held_out_corpus.batches(40)]
    model = BiLSTMTagger(args.vocab_size, args.num_tags).to(args.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        mean_nll = train_epoch(model, corpus, held_out, optimizer, args, epoch)
        log.info("epoch %d: mean held-out neg log likelihood %.4f", epoch, mean_nll)
    torch.save(model.state_dict(), "tagger.pt")


if __name__ == "__main__":
    main()
