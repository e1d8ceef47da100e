"""Learner with a fleet of actors."""
import argparse
import logging
import multiprocessing as mp
import queue
import time

import torch
from torch import nn

from launcher import FleetLauncher

log = logging.getLogger("fleet.learner")


class Learner:
    def __init__(self, lr):
        self.net = nn.Linear(12, 3)
        self.optim = torch.optim.Adam(self.net.parameters(), lr=lr)
        self.updates = 0

    def update(self, episode):
        obs, actions, ret = episode
        logp = self.net(torch.from_numpy(obs)).log_softmax(1)[torch.arange(len(actions)), torch.from_numpy(actions)]
        loss = -(logp * ret).mean()
        self.optim.zero_grad()
        loss.backward()
        self.optim.step()
        self.updates += 1
        return loss.item()


def monitor_main(every):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    while True:
        with open("/proc/loadavg") as handle:
            log.info("load %s", handle.read().split()[0])
        time.sleep(every)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--actors", type=int, default=3)
    parser.add_argument("--settle", type=float, default=4.0)
    parser.add_argument("--updates", type=int, default=900)
    parser.add_argument("--patience", type=float, default=10.0)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    torch.set_num_threads(1)
    mp.Process(target=monitor_main, args=(15.0,), name="monitor", daemon=True).start()
    fleet = FleetLauncher(args.actors, args.settle, ready_timeout=30.0)
    fleet.launch()
    learner = Learner(lr=1e-3)
    while learner.updates < args.updates:
        try:
            episode = fleet.episodes.get(timeout=args.patience)
        except queue.Empty:
            log.info("waiting for episodes, %d updates so far", learner.updates)
            continue
        loss = learner.update(episode)
        if learner.updates % 10 == 0:
            log.info("update %d loss %.4f", learner.updates, loss)


if __name__ == "__main__":
    main()
