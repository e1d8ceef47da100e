import argparse
import logging

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from store import EmbeddingStore

log = logging.getLogger("ranker")


class Impressions(Dataset):
    def __init__(self, store, size):
        self.store = store
        gen = torch.Generator().manual_seed(3)
        self.items = torch.randint(0, store.n_items, (size, 4), generator=gen).numpy()
        self.clicks = torch.randint(0, 2, (size,), generator=gen)

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        emb = self.store.lookup(self.items[i])
        return torch.from_numpy(emb).flatten(), self.clicks[i]


def train(args):
    store = EmbeddingStore(args.items, args.dim).start()
    loader = DataLoader(Impressions(store, args.size), batch_size=64, num_workers=args.workers, shuffle=True)
    model = nn.Sequential(nn.Linear(4 * args.dim, 32), nn.ReLU(), nn.Linear(32, 1))
    for epoch in range(args.epochs):
        log.info("epoch %d", epoch)
        total = 0.0
        for x, y in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(x).squeeze(1), y.float())
            grads = torch.autograd.grad(loss, list(model.parameters()))
            with torch.no_grad():
                for p, g in zip(model.parameters(), grads):
                    p -= 1e-2 * g
            total += loss.item()
        log.info("epoch %d loss %.4f", epoch, total / len(loader))


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--items", type=int, default=2000)
    p.add_argument("--dim", type=int, default=16)
    p.add_argument("--size", type=int, default=4000)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--epochs", type=int, default=200)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    train(p.parse_args())
