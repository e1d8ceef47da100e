import argparse
import logging

import torch
from torch import nn

log = logging.getLogger("ranker")


def parse_args():
    p = argparse.ArgumentParser(description="train the pairwise ranker")
    p.add_argument("--steps", type=int, default=3000)
    p.add_argument("--batch-size", type=int, default=16)
    p.add_argument("--lr", type=float, default=1e-3)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    log.info("loading features")
    from features import vectorise

    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    opt = torch.optim.Adam(model.parameters(), lr=args.lr)
    for step in range(args.steps):
        docs = torch.randint(0, 2400, (2, args.batch_size))
        x = torch.tensor([[vectorise(int(d)) for d in side] for side in docs])
        pos, neg = model(x[0]), model(x[1])
        loss = torch.nn.functional.softplus(neg - pos).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 100 == 0:
            log.info("step %d loss %.4f", step, loss.item())


if __name__ == "__main__":
    main()
