import argparse
import logging
import multiprocessing as mp
import time

import numpy as np
import torch

from rollout import Collector, EpisodeBuffer

log = logging.getLogger("store")


class PolicyUpdater:
    def __init__(self, obs_dim):
        self.net = torch.nn.Sequential(
            torch.nn.Linear(obs_dim, 128), torch.nn.Tanh(), torch.nn.Linear(128, 8)
        )
        self.opt = torch.optim.Adam(self.net.parameters(), lr=1e-3)

    def update(self, frames):
        data = torch.from_numpy(frames)
        for chunk in data.split(256):
            self.opt.zero_grad()
            loss = self.net(chunk).pow(2).mean()
            loss.backward()
            self.opt.step()
        return loss.item()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--collectors", type=int, default=2)
    p.add_argument("--obs-dim", type=int, default=2048)
    p.add_argument("--capacity-mb", type=int, default=220)
    p.add_argument("--duration", type=float, default=130)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")

    episodes = mp.Queue(maxsize=8)
    stop = mp.Event()
    workers = [Collector(i, episodes, stop, args.obs_dim) for i in range(args.collectors)]
    for w in workers:
        w.start()

    buffer = EpisodeBuffer(args.capacity_mb * 2**20)
    updater = PolicyUpdater(args.obs_dim)
    deadline = time.time() + args.duration
    rounds = 0
    while time.time() < deadline:
        buffer.add(episodes.get())
        if buffer.full:
            loss = updater.update(buffer.drain())
            rounds += 1
            log.info("update %d loss %.5f", rounds, loss)
    stop.set()
    while any(w.is_alive() for w in workers):
        while not episodes.empty():
            episodes.get()
        time.sleep(0.05)
    log.info("finished after %d updates", rounds)


if __name__ == "__main__":
    main()
