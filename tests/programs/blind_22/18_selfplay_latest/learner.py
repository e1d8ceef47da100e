import glob
import logging
import os
import time

import numpy as np
import torch
from torch.nn import functional as F

from checkpoints import save_model
from game import ValueNet

log = logging.getLogger("learner")


class Learner:
    def __init__(self, args, root):
        self.args = args
        self.models = os.path.join(root, "models")
        self.games = os.path.join(root, "games")
        torch.manual_seed(0)
        self.net = ValueNet()
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=args.lr)

    def collect(self, version):
        wanted = self.args.actors * self.args.games_per_actor
        while True:
            paths = glob.glob(os.path.join(self.games, f"v{version}_*.npz"))
            if len(paths) >= wanted:
                break
            time.sleep(self.args.poll)
        xs, ys = [], []
        for path in paths:
            with np.load(path) as game:
                xs.append(game["x"])
                ys.append(game["y"])
            os.remove(path)
        return torch.from_numpy(np.concatenate(xs)), torch.from_numpy(np.concatenate(ys))

    def improve(self, x, y):
        for _ in range(self.args.updates):
            idx = torch.randint(0, len(x), (64,))
            loss = F.mse_loss(self.net(x[idx]), y[idx])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return loss.item()

    def run(self):
        save_model(self.net, self.models, 0)
        for version in range(self.args.iterations):
            started = time.time()
            x, y = self.collect(version)
            loss = self.improve(x, y)
            save_model(self.net, self.models, version + 1)
            log.info("iteration %d: %d positions, loss %.4f, %.2f s", version, len(x), loss,
                     time.time() - started)
