"""Speech recognition with CTC."""
import argparse
import logging
import time

START = time.monotonic()

import torch
from torch import nn
from torch.utils.data import DataLoader

from corpus import Corpus, CurriculumSampler, collate


class DeepSpeech(nn.Module):
    def __init__(self, mel, hidden, letters=28):
        super().__init__()
        self.front = nn.Sequential(nn.Linear(mel, hidden), nn.Hardtanh(0, 20))
        self.rnn = nn.GRU(hidden, hidden, num_layers=2)
        self.out = nn.Linear(hidden, letters)

    def forward(self, x):
        return self.out(self.rnn(self.front(x))[0]).log_softmax(-1)


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--utterances", type=int, default=1200)
    p.add_argument("--batch-size", type=int, default=8)
    p.add_argument("--mel", type=int, default=40)
    p.add_argument("--hidden", type=int, default=128)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--epochs", type=int, default=30)
    p.add_argument("--sorted-epochs", type=int, default=30)
    p.add_argument("--lr", type=float, default=3e-4)
    p.add_argument("--time-limit", type=float, default=105.0, help="seconds of the queue slot")
    p.add_argument("--seed", type=int, default=1)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    corpus = Corpus(args.utterances, args.mel, args.seed)
    sampler = CurriculumSampler(corpus, args.batch_size, args.sorted_epochs, args.seed)
    loader = DataLoader(corpus, batch_sampler=sampler, collate_fn=collate, num_workers=args.workers,
                        persistent_workers=True)
    model = DeepSpeech(args.mel, args.hidden)
    opt = torch.optim.Adam(model.parameters(), lr=args.lr)
    ctc = nn.CTCLoss(zero_infinity=True)
    for epoch in range(args.epochs):
        t0 = time.monotonic()
        for step, (x, lengths, y, targets) in enumerate(loader):
            loss = ctc(model(x), y, lengths, targets)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5)
            opt.step()
            if step % 20 == 19:
                logging.info("epoch %d batch %d/%d loss %.2f %.0f ms/batch, longest %.1f s", epoch, step + 1,
                             len(sampler), loss.item(), (time.monotonic() - t0) * 50, len(x) / 40)
                t0 = time.monotonic()
            if time.monotonic() - START > args.time_limit:
                logging.info("time limit reached in epoch %d, batch %d", epoch, step + 1)
                return


if __name__ == "__main__":
    main()
