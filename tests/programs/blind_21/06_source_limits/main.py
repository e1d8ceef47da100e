"""Trains an autoencoder on images streamed from several rate-limited stores."""
import argparse
import logging
import multiprocessing as mp
import os
import threading
import time

import torch
from torch import nn

import fetcher
import origin

log = logging.getLogger("train")
SIDE = 32


class AutoEncoder(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.enc = nn.Sequential(nn.Conv2d(3, 8, 4, 2, 1), nn.ReLU(), nn.Conv2d(8, hidden, 4, 2, 1))
        self.dec = nn.Sequential(
            nn.ConvTranspose2d(hidden, 8, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(8, 3, 4, 2, 1))

    def forward(self, x):
        return torch.sigmoid(self.dec(self.enc(x)))


def batches(queue, size):
    while True:
        images = []
        while len(images) < size:
            _, blob = queue.get()
            image = torch.frombuffer(bytearray(blob), dtype=torch.uint8)
            images.append(image.view(3, SIDE, SIDE).float() / 255)
        yield torch.stack(images)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--fetch-threads", type=int, default=12)
    p.add_argument("--queue", type=int, default=64)
    p.add_argument("--hidden", type=int, default=16)
    p.add_argument("--step-pause", type=float, default=0.05)
    p.add_argument("--max-seconds", type=float, default=105)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(0)

    ctx = mp.get_context("fork")
    blob = 3 * SIDE * SIDE
    ours, theirs = ctx.Pipe()
    store = ctx.Process(target=origin.serve, args=(blob, theirs, args.max_seconds + 10),
                        name="origin", daemon=True)
    store.start()
    port = ours.recv()
    queue = ctx.Queue(maxsize=args.queue)
    feed = ctx.Process(target=fetcher.main, name="fetcher", daemon=True,
                       args=(port, queue, args.fetch_threads, blob, args.max_seconds + 10))
    feed.start()
    limit = threading.Timer(args.max_seconds + 12, os._exit, (0,))
    limit.daemon = True
    limit.start()

    model = AutoEncoder(args.hidden)
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    started = since = time.time()
    images = 0
    for step, x in enumerate(batches(queue, args.batch), 1):
        loss = nn.functional.mse_loss(model(x), x)
        opt.zero_grad()
        loss.backward()
        opt.step()
        images += len(x)
        now = time.time()
        if now - since > 5:
            log.info("step %d loss %.4f %.1f images/s", step, loss.item(), images / (now - since))
            images, since = 0, now
        if now - started > args.max_seconds:
            log.info("time limit")
            break
        time.sleep(args.step_pause)
    feed.terminate()
    store.terminate()


if __name__ == "__main__":
    main()
