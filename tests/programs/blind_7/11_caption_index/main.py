"""Contrastive training of a caption encoder."""
import argparse
import logging
import time

import torch
from torch import nn
from torch.utils.data import DataLoader

from captions import WORDS, CaptionDataset, Vocabulary, load_records

log = logging.getLogger("captions")


class CaptionEncoder(nn.Module):
    def __init__(self, vocab, dim=32):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim, padding_idx=0)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.image = nn.Sequential(nn.Linear(3, dim), nn.ReLU(), nn.Linear(dim, dim))

    def forward(self, rows, image):
        b, k, n = rows.shape
        _, h = self.rnn(self.emb(rows.view(b * k, n)))
        text = nn.functional.normalize(h[-1].view(b, k, -1), dim=-1)
        img = nn.functional.normalize(self.image(image), dim=-1)
        return (text * img[:, None]).sum(-1) / 0.1


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--records", type=int, default=280_000)
    p.add_argument("--workers", type=int, default=3)
    p.add_argument("--batch-size", type=int, default=32)
    p.add_argument("--epochs", type=int, default=10)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)

    t0 = time.time()
    records = load_records(args.records, seed=0)
    log.info("%d records in %.1f s", len(records), time.time() - t0)
    vocab = Vocabulary(WORDS)
    loader = DataLoader(CaptionDataset(records, vocab), batch_size=args.batch_size, shuffle=True,
                        num_workers=args.workers)
    model = CaptionEncoder(len(vocab))
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        t0 = time.time()
        for step, (rows, image) in enumerate(loader, 1):
            logits = model(rows, image)
            loss = nn.functional.cross_entropy(logits, torch.zeros(len(rows), dtype=torch.long))
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 20 == 0:
                log.info("epoch %d step %d loss %.3f, %.2f steps/s", epoch, step, loss.item(),
                         step / (time.time() - t0))


if __name__ == "__main__":
    main()
