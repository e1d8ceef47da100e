import argparse
import logging
import time

import torch
from torch import nn
from torch.utils.data import DataLoader

from events import CODES, EventStreamDataset

log = logging.getLogger("pretrain")


class EventGPT(nn.Module):
    def __init__(self, dim=48):
        super().__init__()
        self.code = nn.Embedding(CODES, dim)
        self.continuous = nn.Linear(2, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.head = nn.Linear(dim, CODES)

    def forward(self, batch):
        continuous = torch.stack([batch["values"], batch["deltas"]], dim=-1)
        hidden, _ = self.rnn(self.code(batch["codes"]) + self.continuous(continuous))
        return self.head(hidden[:, :-1])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--subjects", type=int, default=36000)
    parser.add_argument("--events", type=int, default=24)
    parser.add_argument("--max-len", type=int, default=24)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--num-workers", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)

    dataset = EventStreamDataset(args.subjects, args.events, args.max_len)
    log.info("%d subjects with %d events each", len(dataset), args.events)
    loader = DataLoader(dataset, batch_size=args.batch_size, shuffle=True, num_workers=args.num_workers,
                        persistent_workers=True, multiprocessing_context="fork")
    model = EventGPT()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    criterion = nn.CrossEntropyLoss()
    started = time.time()
    for epoch in range(args.epochs):
        for step, batch in enumerate(loader):
            logits = model(batch)
            loss = criterion(logits.reshape(-1, CODES), batch["codes"][:, 1:].reshape(-1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 100 == 0:
                log.info("epoch %d step %d/%d loss %.3f %.0fs", epoch, step, len(loader), loss.item(),
                         time.time() - started)


if __name__ == "__main__":
    main()
