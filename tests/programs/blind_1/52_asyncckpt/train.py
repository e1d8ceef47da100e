import argparse
import logging
import tempfile
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from checkpointer import AsyncCheckpointer

log = logging.getLogger("train")


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=1500)
    ap.add_argument("--ckpt-every", type=int, default=100)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    net = nn.Sequential(nn.Embedding(30_000, 400), nn.Flatten(), nn.Linear(4 * 400, 1))
    opt = torch.optim.SGD(net.parameters(), lr=0.01)
    data = TensorDataset(torch.randint(0, 30_000, (args.steps * 16, 4)))
    with tempfile.TemporaryDirectory(prefix="async_ckpt_") as folder:
        ck = AsyncCheckpointer(folder)
        for step, (ids,) in enumerate(DataLoader(data, batch_size=16, num_workers=1)):
            loss = (net(ids) - 1).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            time.sleep(0.05)
            if step % 50 == 0:
                log.info("step %d loss %.4f", step, loss.item())
            if step and step % args.ckpt_every == 0:
                ck.save(net, step)


if __name__ == "__main__":
    main()
