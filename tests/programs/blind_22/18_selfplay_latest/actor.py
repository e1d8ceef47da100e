import logging
import os
import time

import numpy as np
import torch

from checkpoints import latest_checkpoint, version_of
from game import ValueNet, play


class Actor:
    def __init__(self, index, args, root):
        self.index = index
        self.args = args
        self.models = os.path.join(root, "models")
        self.games = os.path.join(root, "games")
        self.rng = np.random.default_rng(100 + index)
        self.net = ValueNet()
        self.version = -1
        self.log = logging.getLogger(f"actor{index}")

    def wait_for_new_model(self):
        while True:
            path = latest_checkpoint(self.models)
            if path is not None and version_of(path) > self.version:
                self.net.load_state_dict(torch.load(path))
                self.version = version_of(path)
                return
            time.sleep(self.args.poll)

    def run(self):
        while True:
            self.wait_for_new_model()
            self.log.info("playing %d games with model %d", self.args.games_per_actor, self.version)
            for n in range(self.args.games_per_actor):
                positions, results = play(self.net, self.rng, self.args.epsilon)
                name = f"v{self.version}_a{self.index}_{n}.npz"
                tmp = os.path.join(self.games, "." + name)
                np.savez(tmp, x=positions, y=results)
                os.replace(tmp, os.path.join(self.games, name))


def actor_main(index, args, root):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    Actor(index, args, root).run()
