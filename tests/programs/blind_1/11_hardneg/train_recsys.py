import argparse
import logging
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import negatives

log = logging.getLogger("recsys")


class Interactions(Dataset):
    def __init__(self, n):
        g = torch.Generator().manual_seed(0)
        self.users = torch.randint(0, 2000, (n,), generator=g)
        self.items = torch.randint(0, 5000, (n,), generator=g)

    def __len__(self):
        return len(self.users)

    def __getitem__(self, i):
        it = self.items[i].item()
        return self.users[i], self.items[i], negatives.lookup(it)


class MF(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.u, self.i = nn.Embedding(2000, d), nn.Embedding(5000, d)

    def forward(self, u, pos, neg):
        uu = self.u(u)
        sp = (uu * self.i(pos)).sum(-1, keepdim=True)
        sn = (uu.unsqueeze(1) * self.i(neg)).sum(-1)
        return -nn.functional.logsigmoid(sp - sn).mean()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=60)
    ap.add_argument("--num-workers", type=int, default=2)
    ap.add_argument("--mine-after", type=int, default=2, help="epochs before hard negatives are mined")
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    model = MF()
    opt = torch.optim.Adagrad(model.parameters(), lr=0.05)
    loader = DataLoader(Interactions(6000), batch_size=128, shuffle=True, num_workers=args.num_workers)
    for epoch in range(args.epochs):
        if epoch == args.mine_after:
            negatives.NegativeMiner(model.i).start()
        t0, tot = time.time(), 0.0
        for u, pos, neg in loader:
            loss = model(u, pos, neg)
            opt.zero_grad()
            loss.backward()
            opt.step()
            tot += loss.item()
        log.info("epoch %d loss %.4f (%.1fs)", epoch, tot / len(loader), time.time() - t0)


if __name__ == "__main__":
    main()
