import copy

import numpy as np


class GameHistory:
    """One self-played game."""

    def __init__(self, observations, actions, rewards, values):
        self.observation_history = observations
        self.action_history = actions
        self.reward_history = rewards
        self.root_values = values
        self.priorities = None
        self.game_priority = None


class ReplayBuffer:
    def __init__(self, config, rng_seed=0):
        self.config = config
        self.buffer = {}
        self.num_played_games = 0
        self.total_samples = 0
        self.rng = np.random.default_rng(rng_seed)

    def save_game(self, game):
        if game.priorities is None:
            priorities = [abs(v - self.compute_target_value(game, i)) ** self.config.per_alpha
                          for i, v in enumerate(game.root_values)]
            game.priorities = np.array(priorities, dtype="float32")
            game.game_priority = float(np.max(game.priorities))
        self.buffer[self.num_played_games] = game
        self.num_played_games += 1
        self.total_samples += len(game.root_values)
        if len(self.buffer) > self.config.replay_buffer_size:
            oldest = self.num_played_games - len(self.buffer)
            self.total_samples -= len(self.buffer[oldest].root_values)
            del self.buffer[oldest]

    def compute_target_value(self, game, index):
        bootstrap = index + self.config.td_steps
        value = game.root_values[bootstrap] * self.config.discount ** self.config.td_steps \
            if bootstrap < len(game.root_values) else 0.0
        for i, reward in enumerate(game.reward_history[index:bootstrap]):
            value += reward * self.config.discount ** i
        return value

    def sample_game(self):
        game_probs = []
        for game_history in self.buffer.values():
            game_probs.append(game_history.game_priority)
        game_probs = np.array(game_probs, dtype="float64")
        game_probs /= np.sum(game_probs)
        game_index = self.rng.choice(len(self.buffer), p=game_probs)
        game_id = self.num_played_games - len(self.buffer) + int(game_index)
        return game_id, self.buffer[game_id], game_probs[game_index]

    def sample_position(self, game):
        probs = game.priorities.astype("float64") + 1e-8
        probs /= probs.sum()
        position = int(self.rng.choice(len(probs), p=probs))
        return position, probs[position]

    def get_batch(self):
        obs, actions, values, weights, index = [], [], [], [], []
        for _ in range(self.config.batch_size):
            game_id, game, game_prob = self.sample_game()
            pos, pos_prob = self.sample_position(game)
            index.append((game_id, pos))
            obs.append(game.observation_history[pos])
            actions.append(game.action_history[pos])
            values.append(self.compute_target_value(game, pos))
            weights.append(1 / (self.total_samples * game_prob * pos_prob + 1e-9))
        weights = np.array(weights, dtype="float32")
        weights /= weights.max()
        return index, (np.stack(obs), np.array(actions), np.array(values, dtype="float32"), weights)

    def update_priorities(self, priorities, index):
        for (game_id, pos), p in zip(index, priorities):
            game = self.buffer.get(game_id)
            if game is None:
                continue
            game.priorities = copy.copy(game.priorities)
            game.priorities[pos] = p
            game.game_priority = float(np.max(game.priorities))
