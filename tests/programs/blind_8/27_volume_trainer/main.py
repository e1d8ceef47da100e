import argparse
import logging
import multiprocessing as mp
import time

import torch
from torch import nn

from volumes import VolumeReader

log = logging.getLogger("volumes")


class VolumeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv3d(1, 12, 3), nn.ReLU(), nn.Conv3d(12, 12, 3), nn.ReLU(), nn.Conv3d(12, 1, 3))

    def forward(self, x):
        return self.net(x)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--readers", type=int, default=3)
    p.add_argument("--queue-size", type=int, default=4)
    p.add_argument("--duration", type=float, default=130)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    ready = mp.Queue(maxsize=args.queue_size)
    readers = [VolumeReader(i, ready) for i in range(args.readers)]
    for r in readers:
        r.start()
    model = VolumeNet()
    opt = torch.optim.Adam(model.parameters())
    end, step, start = time.time() + args.duration, 0, time.time()
    while time.time() < end:
        x = torch.from_numpy(ready.get())
        for _ in range(2):
            opt.zero_grad()
            loss = model(x).pow(2).mean()
            loss.backward()
            opt.step()
        step += 1
        if step % 5 == 0:
            log.info("volume %d loss %.5f %.2f volumes/s", step, loss.item(), step / (time.time() - start))
    for r in readers:
        r.terminate()


if __name__ == "__main__":
    main()
