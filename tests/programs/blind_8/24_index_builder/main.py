import argparse
import logging
import multiprocessing as mp
import os
import signal
import time

import torch

from indexing import IndexBuilder

log = logging.getLogger("main")


class Foreground:
    def __init__(self):
        self.net = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512))
        self.opt = torch.optim.Adam(self.net.parameters())

    def train(self, seconds):
        end, n = time.time() + seconds, 0
        while time.time() < end:
            x = torch.randn(128, 512)
            self.opt.zero_grad()
            loss = (self.net(x) - x).pow(2).mean()
            loss.backward()
            self.opt.step()
            n += 1
        return n, loss.item()


class BackgroundGate:
    def __init__(self, process):
        self.process = process

    def __enter__(self):
        os.kill(self.process.pid, signal.SIGSTOP)
        log.info("%s paused while training", self.process.name)

    def __exit__(self, *exc):
        os.kill(self.process.pid, signal.SIGCONT)
        log.info("%s resumed", self.process.name)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--train-seconds", type=float, default=18)
    p.add_argument("--gap-seconds", type=float, default=6)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    progress = mp.Value("i", 0)
    builder = IndexBuilder(progress)
    builder.start()
    foreground = Foreground()
    for r in range(args.rounds):
        time.sleep(args.gap_seconds)
        with BackgroundGate(builder):
            steps, loss = foreground.train(args.train_seconds)
        log.info("round %d: %d steps, loss %.4f, %d documents indexed", r, steps, loss, progress.value)
    builder.terminate()
    builder.join()


if __name__ == "__main__":
    main()
