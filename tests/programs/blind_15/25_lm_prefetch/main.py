"""Train a small language model on chunks of text that a background process reads."""
import argparse
import logging
import shutil
import tempfile
import time

import torch
from torch import nn

from corpus import Tokenizer, read_chunk, write_chunks
from iterators import (BufferedShuffleIterator, FixedBatchIterator, ForkPrefetchIterator,
                       InfinitePermutationSource, MapIterator, SelectManyIterator)

log = logging.getLogger("train")


class LanguageModel(nn.Module):
    def __init__(self, vocab, dim=128):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, vocab)

    def forward(self, x):
        return self.out(self.rnn(self.emb(x))[0])


def make_data(paths, tokenizer, args):
    chunks = InfinitePermutationSource(paths, args.seed)
    lines = SelectManyIterator(chunks, read_chunk)
    samples = MapIterator(lines, tokenizer.encode)
    samples = BufferedShuffleIterator(samples, args.shuffle, args.seed)
    batches = FixedBatchIterator(samples, args.batch_size)
    return ForkPrefetchIterator(batches, args.prefetch)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=100_000)
    p.add_argument("--chunks", type=int, default=12)
    p.add_argument("--lines-per-chunk", type=int, default=1200)
    p.add_argument("--batch-size", type=int, default=32)
    p.add_argument("--shuffle", type=int, default=512)
    p.add_argument("--prefetch", type=int, default=16)
    p.add_argument("--log-every", type=int, default=20)
    p.add_argument("--seed", type=int, default=5)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    folder = tempfile.mkdtemp(prefix="corpus_")
    tokenizer = Tokenizer()
    paths = write_chunks(folder, args.chunks, args.lines_per_chunk)
    data = make_data(paths, tokenizer, args)
    model = LanguageModel(tokenizer.size)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    t0 = time.time()
    try:
        for step in range(1, args.steps + 1):
            tokens = torch.tensor(next(data))
            loss = nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % args.log_every == 0:
                log.info("step %d loss %.4f (%.1f s)", step, loss.item(), time.time() - t0)
    finally:
        data.close()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
