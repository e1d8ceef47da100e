import argparse
import logging
import multiprocessing as mp
import queue
import time

import torch
from torch import nn

from replay_buffer import ReplayBuffer
from simulator import drive

log = logging.getLogger("phase2")


def parse_args():
    p = argparse.ArgumentParser(description="train the image agent on its own drives (phase 2)")
    p.add_argument("--seconds", type=float, default=105)
    p.add_argument("--simulators", type=int, default=2)
    p.add_argument("--fps", type=float, default=11.0)
    p.add_argument("--buffer-limit", type=int, default=1000)
    p.add_argument("--batch-size", type=int, default=8)
    p.add_argument("--iterations-per-epoch", type=int, default=12)
    p.add_argument("--lr", type=float, default=1e-4)
    return p.parse_args()


class ImagePolicy(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(3, 8, 7, 4), nn.ReLU(), nn.Conv2d(8, 16, 5, 4), nn.ReLU(),
                                  nn.AdaptiveAvgPool2d((3, 6)), nn.Flatten())
        self.heads = nn.Linear(16 * 18, 4 * 10)

    def forward(self, rgb, command):
        out = self.heads(self.conv(rgb)).view(-1, 4, 5, 2)
        return out[torch.arange(len(command)), command]


def collect(frames, buffer):
    n = 0
    while True:
        try:
            item = frames.get_nowait()
        except queue.Empty:
            return n
        if item is not None:
            buffer.add_data(*item)
            n += 1


def train_epoch(net, optim, buffer, args, frames):
    total = 0.0
    for _ in range(args.iterations_per_epoch):
        rgb, command, waypoints = buffer.sample(args.batch_size)
        loss = nn.functional.l1_loss(net(rgb, command), waypoints)
        optim.zero_grad()
        loss.backward()
        optim.step()
        total += loss.item()
        collect(frames, buffer)
    return total / args.iterations_per_epoch


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    ctx = mp.get_context("fork")
    frames, stop = ctx.Queue(maxsize=64), ctx.Event()
    sims = [ctx.Process(target=drive, args=(n, frames, stop, args.fps), name=f"sim-{n}")
            for n in range(args.simulators)]
    for s in sims:
        s.start()
    buffer, net = ReplayBuffer(args.buffer_limit), ImagePolicy()
    optim = torch.optim.Adam(net.parameters(), lr=args.lr)
    start, epoch = time.time(), 0
    while time.time() - start < args.seconds:
        collect(frames, buffer)
        if len(buffer) < 10 * args.batch_size:
            time.sleep(0.05)
            continue
        loss = train_epoch(net, optim, buffer, args, frames)
        epoch += 1
        if epoch % 5 == 0:
            log.info("epoch %d loss %.4f buffer %d frames %.0f MB", epoch, loss, len(buffer), buffer.nbytes() / 1e6)
    stop.set()
    left = len(sims)
    while left:
        left -= frames.get() is None
    for s in sims:
        s.join()
    log.info("phase 2 finished after %d epochs", epoch)


if __name__ == "__main__":
    main()
