"""Train an interatomic potential."""
import argparse
import logging
import time

import torch

from data import ParallelLoader, StructureDataset
from model import Potential


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--structures", type=int, default=4096)
    p.add_argument("--atoms", type=int, default=48)
    p.add_argument("--cutoff", type=float, default=3.0)
    p.add_argument("--batch-size", type=int, default=32)
    p.add_argument("--num-workers", type=int, default=4)
    p.add_argument("--epochs", type=int, default=1000)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--log-every", type=int, default=10)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dataset = StructureDataset(args.structures, args.atoms, args.cutoff)
    loader = ParallelLoader(dataset, args.batch_size, args.num_workers)
    model = Potential()
    opt = torch.optim.Adam(model.parameters(), lr=args.lr)
    step, wait, t0 = 0, 0.0, time.monotonic()
    for epoch in range(args.epochs):
        before = time.monotonic()
        for species, adjacency, energy in loader:
            wait += time.monotonic() - before
            pred = model(torch.from_numpy(species), torch.from_numpy(adjacency))
            loss = torch.nn.functional.mse_loss(pred, torch.from_numpy(energy))
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
            if step % args.log_every == 0:
                spent = time.monotonic() - t0
                logging.info("epoch %d step %d loss %.4f %.0f ms/step (%.0f ms waiting for data)", epoch, step,
                             loss.item(), 1000 * spent / args.log_every, 1000 * wait / args.log_every)
                wait, t0 = 0.0, time.monotonic()
            before = time.monotonic()


if __name__ == "__main__":
    main()
