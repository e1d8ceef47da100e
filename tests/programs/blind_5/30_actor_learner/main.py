import argparse
import logging
import multiprocessing as mp
import time

import torch
from torch import nn

from actor import actor_main

log = logging.getLogger("learner")


class Learner:
    def __init__(self, size):
        self.net = nn.Sequential(nn.Conv2d(1, 4, 8, stride=8), nn.ReLU(), nn.Flatten(), nn.LazyLinear(1))
        self.net(torch.zeros(1, 1, size, size))
        self.opt = torch.optim.Adam(self.net.parameters(), lr=1e-4)
        self.updates = 0

    def update(self, item, passes):
        x = torch.from_numpy(item["frames"]).float().unsqueeze(1) / 255.0
        r = torch.tensor(item["rewards"]).unsqueeze(1)
        for _ in range(passes):
            loss = (self.net(x) - r).pow(2).mean()
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
        self.updates += 1
        return loss.item()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--actors", type=int, default=2)
    p.add_argument("--size", type=int, default=160)
    p.add_argument("--fps", type=float, default=100.0)
    p.add_argument("--rollout", type=int, default=20)
    p.add_argument("--passes", type=int, default=4)
    p.add_argument("--update-interval", type=float, default=0.7)
    p.add_argument("--updates", type=int, default=150)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    transitions = mp.Queue()
    parameters = [mp.Queue(maxsize=1) for _ in range(args.actors)]
    for i in range(args.actors):
        mp.Process(target=actor_main, args=(i, transitions, parameters[i], args.size, args.fps, args.rollout),
                   daemon=True).start()
    learner = Learner(args.size)
    while learner.updates < args.updates:
        t0 = time.time()
        item = transitions.get()
        loss = learner.update(item, args.passes)
        if learner.updates % 5 == 0:
            for q in parameters:
                if q.empty():
                    q.put(learner.updates)
            log.info("update %d from actor %d loss %.4f", learner.updates, item["actor"], loss)
        time.sleep(max(0.0, args.update_interval - (time.time() - t0)))


if __name__ == "__main__":
    main()
