import logging
import time

import numpy as np
import torch
from torch import nn

log = logging.getLogger("chain.stage")


def setup():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    torch.set_num_threads(1)


class DecodeStage:
    def __init__(self, sink, clips):
        self.sink = sink
        self.clips = clips

    def run(self):
        rng = np.random.default_rng(0)
        for number in range(self.clips):
            self.sink.send((number, rng.random((8, 32, 32), dtype=np.float32)))
            time.sleep(0.08)
        self.sink.close()
        log.info("decoded %d clips", self.clips)


class AugmentStage:
    def __init__(self, source, sink):
        self.source = source
        self.sink = sink

    def run(self):
        done = 0
        while True:
            try:
                number, clip = self.source.recv()
            except EOFError:
                break
            self.sink.send((number, clip[:, ::-1].copy() if number % 2 else clip))
            done += 1
        self.sink.close()
        log.info("augmented %d clips", done)


class FitStage:
    def __init__(self, source, log_every=10):
        self.source = source
        self.log_every = log_every
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(8 * 32 * 32, 4))

    def run(self):
        step = 0
        while True:
            try:
                _, clip = self.source.recv()
            except EOFError:
                break
            loss = self.net(torch.from_numpy(clip)[None]).pow(2).mean()
            self.net.zero_grad()
            loss.backward()
            with torch.no_grad():
                for p in self.net.parameters():
                    p.sub_(p.grad, alpha=1e-3)
            step += 1
            if step % self.log_every == 0:
                log.info("clip %d loss %.4f", step, loss.item())
        log.info("fit on %d clips", step)


def stage_main(factory, *args):
    setup()
    factory(*args).run()
