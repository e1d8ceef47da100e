import argparse
import logging
import multiprocessing as mp
import time

import torch
from torch import nn

from feed import reader_main

log = logging.getLogger("anomaly")


class AutoEncoder(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.enc = nn.Conv1d(channels, 24, 9, stride=2, padding=4)
        self.mid = nn.GRU(24, 24, batch_first=True)
        self.dec = nn.ConvTranspose1d(24, channels, 10, stride=2, padding=4)

    def forward(self, x):
        h = torch.relu(self.enc(x))
        h, _ = self.mid(h.transpose(1, 2))
        return self.dec(h.transpose(1, 2))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--readers", type=int, default=2)
    p.add_argument("--channels", type=int, default=6)
    p.add_argument("--window", type=int, default=256)
    p.add_argument("--queue-size", type=int, default=16)
    p.add_argument("--minutes", type=float, default=1.3)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    feed = mp.Queue(maxsize=args.queue_size)
    readers = [mp.Process(target=reader_main, args=(i, args.channels, args.window, feed), daemon=True)
               for i in range(args.readers)]
    for r in readers:
        r.start()
    model = AutoEncoder(args.channels)
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    end = time.time() + 60 * args.minutes
    step = 0
    while time.time() < end:
        sid, n, made, batch = feed.get()
        x = torch.from_numpy(batch)
        loss = (model(x) - x).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        step += 1
        if step % 10 == 0:
            log.info("step %d reader %d window %d loss %.4f queue %d/%d age %.2fs", step, sid, n, loss.item(),
                     feed.qsize(), args.queue_size, time.time() - made)
    for r in readers:
        r.terminate()
        r.join()
    log.info("finished after %d steps", step)


if __name__ == "__main__":
    main()
