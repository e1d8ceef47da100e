import time

import numpy as np

from replay_buffer import GameHistory


def play_game(rng, config):
    length = int(rng.integers(6, 14))
    obs = rng.random((length, config.observation_size), dtype=np.float32)
    actions = rng.integers(0, config.action_space, length)
    rewards = rng.choice([0.0, 0.0, 0.0, 1.0, -1.0], length)
    values = rng.normal(0, 0.3, length)
    return GameHistory(obs, actions, rewards, values)


def self_play_loop(worker_id, config, games, stop):
    """Self-play actor: search is the slow part, one game takes about a second."""
    rng = np.random.default_rng(1000 + worker_id)
    while not stop.is_set():
        game = play_game(rng, config)
        time.sleep(0.08 * len(game.root_values))
        games.put(game)
