"""Train a small next-token model on records kept in one compressed shard."""
import argparse
import logging
import os
import tempfile
import time

import torch
from torch import nn
from torch.utils.data import DataLoader

from shard import CompressedShard, build_shard, scan_shard

log = logging.getLogger("train")


class NextToken(nn.Module):
    def __init__(self, vocab=512, dim=32):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.head = nn.Linear(dim, vocab)

    def forward(self, ids):
        return self.head(self.rnn(self.emb(ids))[0])


def train(model, loader, epochs, crop, log_every):
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for epoch in range(epochs):
        seen, t0, wait = 0, time.time(), 0.0
        it = iter(loader)
        step = 0
        while True:
            t = time.time()
            batch = next(it, None)
            wait += time.time() - t
            if batch is None:
                break
            ids = batch[:, :crop]
            logits = model(ids[:, :-1])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
            opt.zero_grad()
            loss.backward()
            opt.step()
            seen += len(batch)
            if step % log_every == 0:
                log.info("epoch %d step %d loss %.3f  %.1f samples/s", epoch, step,
                         loss.item(), seen / (time.time() - t0))
            step += 1


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default=None, help="shard (.bin.gz); made up if absent")
    parser.add_argument("--records", type=int, default=10000)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--crop", type=int, default=128)
    parser.add_argument("--log-every", type=int, default=1)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.manual_seed(0)

    path = args.data or os.path.join(tempfile.mkdtemp(prefix="tokens_"), "train.bin.gz")
    if not os.path.exists(path):
        build_shard(path, args.records)
    t0 = time.time()
    count = scan_shard(path)
    log.info("%s: %d records, scanned at %.0f records/s", os.path.basename(path), count,
             count / (time.time() - t0))

    dataset = CompressedShard(path, count)
    loader = DataLoader(dataset, batch_size=args.batch_size, shuffle=True,
                        num_workers=args.workers, persistent_workers=True)
    train(NextToken(), loader, args.epochs, args.crop, args.log_every)


if __name__ == "__main__":
    main()
