"""Learns a frame predictor from two simulated cameras."""
import argparse
import logging
import multiprocessing as mp
import time

import torch
from torch import nn

from camera import camera_main
from exchange import FrameBlock

log = logging.getLogger("frames")


class Predictor:
    def __init__(self, lr=1e-2):
        self.net = nn.Conv2d(1, 1, 3, padding=1)
        self.lr = lr

    def learn(self, frames):
        small = frames[:, None, ::4, ::4].contiguous()
        loss = nn.functional.mse_loss(self.net(small[:-1]), small[1:])
        self.net.zero_grad()
        loss.backward()
        with torch.no_grad():
            for p in self.net.parameters():
                p.sub_(p.grad, alpha=self.lr)
        return loss.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cameras", type=int, default=2)
    parser.add_argument("--frames", type=int, default=8)
    parser.add_argument("--edge", type=int, default=256)
    parser.add_argument("--interval", type=float, default=0.4)
    parser.add_argument("--seconds", type=float, default=130)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    torch.set_num_threads(1)
    bursts, stop = mp.Queue(maxsize=4), mp.Event()
    cameras = [mp.Process(target=camera_main, args=(i, bursts, args.frames, args.edge, args.interval, stop),
                          name=f"camera-{i}", daemon=True) for i in range(args.cameras)]
    for process in cameras:
        process.start()
    predictor, count = Predictor(), 0
    deadline = time.monotonic() + args.seconds
    while time.monotonic() < deadline:
        block = FrameBlock.attach(bursts.get())
        frames = torch.tensor(block.array)
        block.close()
        loss = predictor.learn(frames)
        count += 1
        if count % 50 == 0:
            log.info("burst %d loss %.4f", count, loss)
    stop.set()
    for process in cameras:
        process.join(5)


if __name__ == "__main__":
    main()
