import logging
import random

import numpy as np
import torch

from network import PolicyValueNet


class GridHunt:
    """Reach the marked cell of a small board; every move costs a little."""

    moves = [(0, 1), (1, 0), (0, -1), (-1, 0)]

    def __init__(self, n, max_moves, rng):
        self.n, self.max_moves, self.rng = n, max_moves, rng

    def reset(self):
        cells = [(i, j) for i in range(self.n) for j in range(self.n)]
        self.pos, self.goal = self.rng.sample(cells, 2)
        self.t = 0
        return self.observe()

    def observe(self):
        obs = np.zeros((2, self.n, self.n), np.float32)
        obs[0][self.pos] = 1
        obs[1][self.goal] = 1
        return obs

    def step(self, a):
        d = self.moves[a]
        self.pos = tuple(min(self.n - 1, max(0, p + q)) for p, q in zip(self.pos, d))
        self.t += 1
        won = self.pos == self.goal
        return self.observe(), (1.0 if won else -0.02), won or self.t >= self.max_moves


def run_actor(idx, config, replay, storage):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    log = logging.getLogger("actor")
    torch.set_num_threads(1)
    rng = random.Random(config.seed + idx)
    torch.manual_seed(config.seed + idx)
    env = GridHunt(config.board, config.max_moves, rng)
    net = PolicyValueNet(config.board, config.hidden).eval()
    seen, games = -1, 0
    while True:
        step = storage.get_step()
        if step != seen:
            weights = storage.get_weights()
            if weights is not None:
                net.load_state_dict({k: torch.from_numpy(v) for k, v in weights.items()})
            seen = step
            log.info("weights of training step %d loaded", step)
        game = {"observations": [], "actions": [], "rewards": []}
        obs, done = env.reset(), False
        while not done:
            with torch.no_grad():
                logits, _ = net(torch.from_numpy(obs).unsqueeze(0))
            a = int(torch.distributions.Categorical(logits=logits[0]).sample())
            game["observations"].append(obs)
            obs, r, done = env.step(a)
            game["actions"].append(a)
            game["rewards"].append(r)
        game["return"] = float(sum(game["rewards"]))
        replay.save_history(game)
        games += 1
        if games % 500 == 0:
            log.info("games=%d last return=%.2f", games, game["return"])
