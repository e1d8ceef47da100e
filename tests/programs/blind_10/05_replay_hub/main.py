"""Off-policy learner with a replay memory shared by two actors."""
import argparse
import logging
import multiprocessing as mp
import time

import numpy as np
import torch
from torch import nn

from actor import actor_main
from buffer import SharedReplay

log = logging.getLogger("replay.learner")


class Learner:
    def __init__(self, replay, batch_size):
        self.replay = replay
        self.batch_size = batch_size
        self.rng = np.random.default_rng(0)
        self.model = nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(replay.obs_shape)), 16), nn.ReLU(), nn.Linear(16, 1))

    def update(self):
        batch = self.replay.sample(self.rng, self.batch_size)
        if batch is None:
            return None
        obs, rewards = (torch.from_numpy(part) for part in batch)
        loss = nn.functional.mse_loss(self.model(obs.float() / 255).squeeze(1), rewards)
        self.model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for p in self.model.parameters():
                p.sub_(p.grad, alpha=1e-3)
        return loss.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--capacity", type=int, default=24000)
    parser.add_argument("--frame", type=int, default=160)
    parser.add_argument("--actors", type=int, default=2)
    parser.add_argument("--fps", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=130)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    torch.set_num_threads(1)

    replay = SharedReplay(args.capacity, (args.frame, args.frame), args.actors)
    log.info("replay reserves %.0f MiB", replay.nbytes / 2**20)
    stop = mp.Event()
    actors = [mp.Process(target=actor_main, args=(i, replay, stop, args.fps), name=f"actor-{i}", daemon=True)
              for i in range(args.actors)]
    for process in actors:
        process.start()
    learner = Learner(replay, batch_size=32)
    deadline = time.monotonic() + args.seconds
    updates = 0
    while time.monotonic() < deadline:
        loss = learner.update()
        updates += loss is not None
        if updates and updates % 100 == 0:
            log.info("update %d loss %.3f, %d of %d slots in use", updates, loss, sum(replay.filled()), args.capacity)
        time.sleep(0.1)
    stop.set()
    for process in actors:
        process.join()


if __name__ == "__main__":
    main()
