import logging
import os
import threading
import time

import torch
from torch import nn

from episode import Episode, Pendulum
from journal import Journal

log = logging.getLogger("actor")


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 1))

    def forward(self, obs):
        return 2 * torch.tanh(self.net(obs))


class Actor:
    def __init__(self, index, args, directory, out):
        self.index, self.args, self.out = index, args, out
        self.journal = Journal(os.path.join(directory, f"actor-{index}.jsonl"), index)
        self.env = Pendulum(args.seed + index)
        self.policy = Policy()

    def heartbeat(self):
        while True:
            time.sleep(self.args.heartbeat)
            self.journal.write("heartbeat", counts=self.journal.counts())

    def run(self):
        torch.set_num_threads(1)
        torch.manual_seed(self.args.seed + self.index)
        threading.Thread(target=self.heartbeat, daemon=True).start()
        number = 0
        while True:
            number += 1
            episode = self.play(number)
            if episode is not None:
                self.out.put((self.index, [s["obs"] for s in episode.steps],
                              [s["action"] for s in episode.steps],
                              [s["reward"] for s in episode.steps]))

    @torch.no_grad()
    def play(self, number):
        episode = Episode(number, self.journal)
        obs = self.env.reset()
        for _ in range(self.args.horizon):
            action = self.policy(torch.tensor(obs)).item() + self.env.rng.gauss(0, 0.3)
            nxt, reward, diverged = self.env.step(action)
            if diverged:
                return None
            episode.add(obs, action, reward)
            obs = nxt
        episode.close()
        return episode


def actor_main(index, args, directory, out):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [actor {index}] %(message)s")
    log.info("started (pid %d)", os.getpid())
    Actor(index, args, directory, out).run()
