import numpy as np
import torch
import torch.nn as nn


class Gomoku:
    def __init__(self, n=19):
        self.n = n
        self.actions = n * n

    def initial(self):
        return np.zeros((self.n, self.n), dtype=np.int64)

    def key(self, board):
        return board.tobytes()

    def valid_moves(self, board):
        return (board.ravel() == 0).astype(np.float64)

    def next_canonical(self, board, action):
        b = board.copy()
        b[action // self.n, action % self.n] = 1
        return -b

    def ended(self, board):
        """-1 when the player who just moved has five in a row, 1e-4 for a draw, else 0."""
        m = board == -1
        if m.sum() >= 5:
            for dy, dx in ((0, 1), (1, 0), (1, 1), (1, -1)):
                h, w = self.n - 4 * dy, self.n - 4 * abs(dx)
                x0 = 4 if dx < 0 else 0
                run = np.ones((h, w), bool)
                for k in range(5):
                    run &= m[k * dy:k * dy + h, x0 + k * dx:x0 + k * dx + w]
                if run.any():
                    return -1
        return 1e-4 if (board != 0).all() else 0


class PolicyValueNet:
    def __init__(self, game, seed=0):
        torch.manual_seed(seed)
        self.game = game
        self.body = nn.Sequential(nn.Linear(game.actions, 64), nn.ReLU())
        self.pi = nn.Linear(64, game.actions)
        self.v = nn.Linear(64, 1)

    @torch.no_grad()
    def predict(self, board):
        h = self.body(torch.from_numpy(board.ravel()).float())
        return torch.softmax(self.pi(h), 0).numpy(), float(torch.tanh(self.v(h)))

    def load(self, state):
        for m, s in zip((self.body, self.pi, self.v), state):
            m.load_state_dict(s)

    def state(self):
        return [m.state_dict() for m in (self.body, self.pi, self.v)]

    def parameters(self):
        return [p for m in (self.body, self.pi, self.v) for p in m.parameters()]
